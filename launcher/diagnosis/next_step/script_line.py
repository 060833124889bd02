"""Advice on a failure in the user's script: the line, its values, the exception's meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...catalogue.package_names import PYTHON, package_of_file
from ...catalogue.version_skew import LAZY
from ...core.quotation import shortened
from ...evidence.failure_record import Frame
from ...system.redaction import redacted
from .instruction import INSTRUCTION
from .meanings import MEANINGS
from .meanings_of_values import MEANINGS_OF_VALUES, NAME, Meaning
from .requirement import REQUIREMENT
from .step import Basis, Case, Step, filled

GENERAL = "Print the values in this line just before it; the message shows which of them is wrong."
WANTED = re.compile(r"'NoneType' object has no attribute '(?P<name>\w+)'")
PIPELINE = re.compile(
    r"(?-i:\|PP=[1-9]\b)|\bpp(?:_size|_rank)?\W{1,4}[2-9]\b"
    r"|pipeline[-_ ](?:model[-_ ])?(?:parallel|stage|engine)",
    re.IGNORECASE,
)
"""A run in pipeline stages."""
PROGRAMMING = {
    *("TypeError", "ValueError", "KeyError", "IndexError", "AttributeError", "NameError"),
    "Exception",
}
"""Exceptions about a value in the raising line; others may come from its callees."""
LONGEST = 240
"""Maximum characters to quote of a message."""


def script_line(case: Case) -> Step | None:
    """The line of the script that raised, and the meaning of the exception for it."""
    frame = script_frame(case)
    if frame is None or not case.kind:
        return None
    line = f"line {frame.line} of {frame.file}"
    if is_check(case):
        if not (INSTRUCTION.search(case.message) or REQUIREMENT.search(case.message)):
            return None  # it reports what it found, and asks for nothing
        message = shortened(redacted(case.message), LONGEST)
        return Step(f"Do what the script's own check asks, in {line}: “{message}”.", Basis.QUOTED)
    meaning = _meaning(case, frame)
    if not meaning and case.kind not in PROGRAMMING:
        return None
    source = f", `{frame.source}`" if frame.source else ""
    return Step(f"{meaning or GENERAL} It failed in {line}{source}.")


def is_check(case: Case) -> bool:
    """Whether the script raised it itself, with a message."""
    return bool(case.message) and case.record.is_raised_by_user(case.raised)


def called_line(case: Case) -> Step | None:
    """The meaning of an exception about values, raised by a library that the script called."""
    frame = case.users_frame
    if case.is_users:
        return None
    meaning = _meaning(case, case.frame, MEANINGS_OF_VALUES)
    if not meaning and (wanted := WANTED.match(case.message)):
        meaning = _what_is_none(case, frame, wanted["name"])
    if not meaning:
        return None
    source = f", `{frame.source}`" if frame and frame.source else ""
    called = f" It was called from line {frame.line} of {frame.file}{source}." if frame else ""
    return Step(f"{meaning}{called}")


def _what_is_none(case: Case, caller: Frame | None, wanted: str) -> str:
    """Names the value that is None, from the raising line or from the script's call, if known."""
    source = case.frame.source if case.frame else ""
    if given := re.search(rf"\b[gs]etattr\((?P<name>\w+), ['\"]{wanted}", source):
        return _handed_over(case, given["name"])
    match = re.search(rf"(?P<name>{NAME}(?:\([^()]*\))?)\.{wanted}\b", source)
    if case.frame is not None and match is not None and match["name"] != "self":
        of = package_of_file(case.frame.file) or case.frame.file
        if "loss" in match["name"] and PIPELINE.search(case.around):
            return (
                f"Skip line {case.frame.line} of {of} on stages without a loss, or upgrade {of}, or"
                " train without pipeline stages: only the last pipeline stage has a loss, so that"
                f" `{match['name']}` is None on this rank (`{case.frame.function}`)."
            )
        return (
            f"`{match['name']}` is None on this rank, in line {case.frame.line} of {of}"
            f" (`{case.frame.function}`): find what should have set it, and why it hasn't here."
        )
    if caller is None:
        return ""
    value = " or ".join(f"`{name}`" for name in _arguments(caller)) or "something"
    return f"{value[0].upper()}{value[1:]} is None and is handed over: find why it got no value."


def _handed_over(case: Case, name: str) -> str:
    """Names the value that another package's or the script's call hands over as None."""
    package = package_of_file(case.frame.file) if case.frame else None
    calls = (f for f in reversed(case.frames) if package_of_file(f.file) != package)
    call = next((frame for frame in calls if _arguments(frame)), None)
    if call is None or package in (None, PYTHON):
        return ""
    values = " or ".join(f"`{value}`" for value in _arguments(call))
    place = f" It comes from line {call.line} of {call.file}, `{call.source}`."
    place = "" if call == case.users_frame else place  # which is named anyway
    return (
        f"Give {values} a value, or take another release of {package}, if None is meant there (no"
        f" reference model, no evaluation): {package} takes no None as `{name}`.{place}"
    )


def _arguments(call: Frame) -> list[str]:
    """The plain values that a line's call hands over."""
    names = re.findall(rf"(?<=[(,])\s*({NAME})\s*(?=[,)])", call.source)
    return [name for name in names if name != "self"]


def script_frame(case: Case) -> Frame | None:
    """The user's frame that raised, directly or through the standard library."""
    frames = [
        frame
        for frame in case.frames
        if package_of_file(frame.file) != PYTHON and frame.function not in LAZY
    ]
    last = frames[-1] if frames else None
    return last if last is not None and last.file in case.record.user_files else None


def _meaning(case: Case, frame: Frame | None, meanings: Sequence[Meaning] = MEANINGS) -> str:
    """The exception's meaning for the line; empty if none fits."""
    for meaning in meanings:
        if re.fullmatch(meaning.kinds, case.kind) is None:
            continue
        match = re.search(meaning.message, case.message)
        in_source = re.search(meaning.source, frame.source) if meaning.source and frame else None
        if match is None or (meaning.source and in_source is None):
            continue
        return filled(meaning.do, match.groupdict() | (in_source.groupdict() if in_source else {}))
    return ""
