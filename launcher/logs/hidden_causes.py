"""Finds the exception that a later one hides behind the wrong advice, or quotes as a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..catalogue.package_names import INSTALLED
from ..catalogue.version_skew import LAZY
from ..evidence.failure_record import Raised
from .tracebacks import Trace

ASKS = re.compile(r"\b(?:install|reinstall|update|upgrade)\b")
ISNT_THERE = (
    r"\b[Nn]o (?:module |package )?(?:named )?\W?{0}\b|\b(?i:missing|find|import|load) \W?{0}\b"
    r"|\b{0}\W? (?:\w+ )?(?:\w+n't|not) (?:be )?(?:installed|found|available|imported)"
    r"|\b{0}\W? (?:is |seems )?missing"
)
"""Pattern of words by which a package isn't there, with its name's place."""
VALUE = re.compile(
    r"(?P<kind>ImportError|ModuleNotFoundError)\((?P<quote>['\"])(?P<message>.*)(?P=quote),?\)"
)
"""An exception as `repr` prints it, on a line of its own."""
WRAPS = re.compile(
    r"(?:[Ee]rror|[Ff]ail(?:ed|ure)|[Uu]nable to|not) (?:\w+ )?"
    r"(?:load|locat|instantiat|import|creat)"
)
"""Words of an exception raised since something couldn't be loaded."""
ABSENT = re.compile(r"No module named '(?P<name>(?P<root>\w+)[\w.]*)")
NEAR = 40
"""Maximum lines between a logged exception and the one that follows from it."""


def unhidden(trace: Trace, before: Sequence[tuple[int, str]]) -> Trace:
    """The exception that a trace hides, with the frames that led to it; or else the trace.

    Args:
        trace: an exception in a log.
        before: numbers and texts of the last lines until it was complete.
    """
    first = next(_causes(trace, before), None)
    if first is None:
        return trace
    line = first.message.partition("\n")[0]
    numbers = (number for number, text in reversed(before) if line in text)
    frame = first.frame
    return replace(
        trace,
        raised=first,
        frames=() if frame is None else (*trace.frames[:-1], frame),
        chain=trace.chain[1:] if first in trace.chain else trace.chain,
        raised_at=next(numbers, trace.raised_at),
    )


def _causes(trace: Trace, before: Sequence[tuple[int, str]]) -> Iterator[Raised]:
    if trace.chain and _blames_what_ran(trace.raised, trace.chain[0]):
        yield trace.chain[0]
    message = trace.raised.message
    if WRAPS.search(message):
        texts = [text for number, text in before[-NEAR:] if number < trace.first]
        yield from _quoted([*texts, *message.splitlines()], message.partition("\n")[0])


def _blames_what_ran(last: Raised, first: Raised) -> bool:
    """Whether an exception misses the package in whose file the one before was raised."""
    frame = first.frame
    if frame is None or frame.function in LAZY:
        return False
    inside = INSTALLED.match(frame.file.replace("\\", "/"))
    absent = ABSENT.match(first.message)
    message = last.message.replace("-", "_")
    package = inside["package"] if inside else ""
    if package not in re.findall(r"\w+", message) or (absent and absent["name"] == package):
        return False
    return bool(ASKS.search(message) or re.search(ISNT_THERE.format(package), message))


def _quoted(lines: Sequence[str], head: str) -> Iterator[Raised]:
    """The failed imports in lines of their own, the last first, but not of what `head` loads."""
    for text in reversed(lines):
        if value := VALUE.fullmatch(text.strip()):
            absent = ABSENT.match(value["message"])
            if absent is None or re.search(rf"['\"]{absent['root']}\b", head) is None:
                yield Raised(value["kind"], value["message"])
