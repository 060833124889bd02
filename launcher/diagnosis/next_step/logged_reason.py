"""Quotes the error that a program logged just before an exception that explains nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, takewhile

from ...evidence.failure_record import Raised
from ...frameworks.registry import COMMANDS
from ...system.redaction import redacted
from .configuration import configuration
from .instruction import FOR_DEVELOPERS, INSTRUCTION, quoted, sentences
from .script_line import script_line
from .step import Basis, Case, Step

MUTE = ("IndexError", "StopIteration", "UnboundLocalError", "SystemExit", "ZeroDivisionError")
"""Exceptions whose messages name no cause."""
CHILD = re.compile(
    r"^Command (?P<command>'?\[?['\"]?(?:\S*/)?(?P<program>[\w.-]+)\b.*)"
    r" (?P<how>(?:returned|died)\b.*)"
)
"""The message of CalledProcessError, with the child's command (subprocess.py)."""
TRAINS = re.compile(rf"python[\d.]*|torchrun|{COMMANDS}")
"""Programs whose own traceback belongs into the log."""
LOGGED = re.compile(
    r"^.{0,60}?\b(?:ERROR|CRITICAL|FATAL)\b[\s\]|:)-]*(?:\[?[\w./]+:\d+\]?[\s|:-]*)?(?P<text>.+)$"
)
"""A line of a logger, and its words."""
SHAPE = re.compile(
    r"\d\d?:\d\d|[\[|]| - |\w\.\w+:\d|\b(?:ERROR|CRITICAL|FATAL)(?:\]|\s*[:|)]|\s{2,}|\s+-)"
)
"""What loggers write around a level; people's headings have none of it."""
WORDS = re.compile(r"[^\W\d_]{2,}\W+(?:.*\W)?[^\W\d_]{2,}")
"""At least two words."""
OF_END = re.compile(
    r"exit ?code|hit an exception\b|Sending process|Traceback \(most|\bsignal\b"
    r"|\bprocess(?:es)? \d+"
    r"|\w+(?:Error|Exception)\b|(?i:\b(?:job|run|task|training)\b.{0,20}\b(?:failed|crashed))"
)
"""A line about an exception or a worker's end instead of a reason."""
OF_OTHERS = re.compile(r"wandb: |ERROR: pip\b|\S+ ?\|? ?mlflow")
"""Lines of trackers and installers, which a training doesn't depend on."""
LOSS = re.compile(r"\bloss\b", re.IGNORECASE)
NEAR = 4
"""Lines before the failure in which its reason may be."""


def logged_reason(case: Case) -> Step | None:
    """The reason that the log has just before an exception without one."""
    return _childs(case) or _own(case)


def failed_command(case: Case) -> Step | None:
    """How to see why a child failed of which the log has no words."""
    child = CHILD.search(case.message)
    if child is None or TRAINS.fullmatch(child["program"]):
        return None
    command = redacted(" ".join(re.findall(r"[^\s'\",\[\]]+", child["command"])))
    return configuration(case) or Step(
        f"Run `{command}` by hand, on the same node: it {child['how'].rstrip('.')}, and its own"
        " words aren't in this log.",
        Basis.OPEN,
    )


def _own(case: Case) -> Step | None:
    """What the program logged as an error, right before it failed without a reason."""
    if not case.kind or not (
        case.kind in MUTE or "'NoneType'" in case.message or len(case.message.split()) < 2
    ):
        return None
    lines = takewhile(lambda line: not OF_END.search(line), case.record.log_tail)
    near = [line for line in lines if line.strip() and not OF_OTHERS.match(line)][-NEAR:]
    logged = (LOGGED.search(line) for line in reversed(near) if SHAPE.search(line))
    match = next((line for line in logged if line and WORDS.search(line["text"])), None)
    if match is None or any(map(LOSS.search, near[near.index(match.string) + 1 :])):
        return None
    texts = sentences(" ".join(match["text"].split()))
    advice = [
        text for text in texts if INSTRUCTION.search(text) and not FOR_DEVELOPERS.search(text)
    ]
    if not advice:
        own = script_line(case)
        after = f" {own.do}" if own else ""
        return Step(f"Look first at the error logged just before: {quoted(texts)}{after}")
    why = "" if texts[0] in advice else f" It reports: {quoted(texts[:1])}"
    return Step(f"The error logged just before advises: {quoted(advice[:2])}{why}", Basis.QUOTED)


def _childs(case: Case) -> Step | None:
    """What a child that failed has printed itself: the first of its last errors."""
    match = CHILD.search(case.message)
    if match is None:
        return None
    own = re.compile(rf"^{re.escape(match['program'])}: (?:error|fatal): \S")
    lines = [line.strip() for line in reversed(case.record.log_tail) if line.strip()]
    start = next((place for place, line in enumerate(lines) if own.search(line)), None)
    if start is None:
        return None
    first = [*takewhile(own.search, islice(lines, start, None))][-1]
    told = replace(case.record, exception="", message=first, chain=(), frames=())
    step = configuration(Case(told, Raised("", first), ()))
    return step or Step(f"Mend what `{match['program']}` reports: {quoted([first])}")
