"""Finds the failure of a traceback that ends before its exception."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..catalogue.entry import KnownFailure, Role
from ..diagnosis.next_step.choose import next_step
from ..diagnosis.next_step.cut_off import CUT_OFF, waits
from ..diagnosis.root_cause import finding_of
from ..evidence.failure_record import FailureRecord, Frame
from .announced import GOES_WELL
from .attempts import Evidence, Reading, users_of
from .ends import is_open
from .judgement import Failure
from .launcher_messages import is_of_launcher
from .progress_signs import IS_PROGRESS, STEP, Written
from .tracebacks import AT_TOP

MOST_AFTER_CUT = 4
"""Maximum lines from a traceback's last frame to the log's end."""
OF_PROGRAM = re.compile(r"\b(?:INFO|DEBUG|WARN\w*)\b|\d\d:\d\d:\d\d")
"""Signs of a line that a program writes as it goes on."""
TITLED = re.compile(
    r"(?:# )?(?:\[\w+\]:? )?(?P<kind>[A-Z]\w*(?:Error|Exception))"
    r" (?P<said>(?:when|while|in|during|at|on|with|after|from)\b.{8,})"
)
"""A title that has an exception's type, and words in place of its message."""
QUOTED = re.compile(
    r"\b(?:error|exception|message|fails with)\b\W{0,4}[\"`](?P<said>[^\"`]*[a-z]{2} [^\"`]*)[\"`]",
    re.IGNORECASE,
)
"""A message that a person quotes as the error."""
OVER = re.compile(
    r"\b(?:previously|before|fixed|solved|resolved|earlier|will be|no help)\b", re.IGNORECASE
)
"""Words on another error, or on none."""
OF_SOMEBODY = re.compile(r"\b(?:my|I|we|our)\b")
NO_ANSWER = ("fallback", "requirement", "told", "cut-off")
"""Rules that say no more of a message than it does itself."""
OF_RAY = re.compile(r"\bRayTaskError\((?P<kind>[A-Z]\w*)\)")
"""The type of a worker's exception in Ray's line above its traceback."""
OF_MESSAGE = re.compile(
    r"(?=.*\b(?:[Gg]ot|[Ee]xpect(?:ed|s)|must|should (?:be|have)|is not|not in the|[Uu]nsupported"
    r"|not supported|[Ii]nvalid|[Mm]issing|[Mm]ismatch|only supports?)\b)"
    r"(?!.*(?:\b(?:I|I'm|we|my|our|when|while|after|how|why)\b|[?\uff1f]\s*$))"
)
"""A message's words, without a person's."""


def of_cut(
    first: int, placed: int, frames: tuple[Frame, ...], rank: int | None, file: str
) -> Evidence:
    """The evidence of a traceback that ends before its exception.

    Args:
        first: number of its first line.
        placed: number of the line with its last frame.
        frames: its frames, outermost first.
        rank: its rank, if known.
        file: the log file.
    """
    last = frames[-1]
    message = f"failed at `{last.source or last.function or f'line {last.line}'}`; {CUT_OFF}"
    record = FailureRecord(
        rank, float(first), message=message, frames=frames, user_files=users_of(frames)
    )
    place = f'File "{last.file}", line {last.line}, in {last.function}'
    return Evidence(record, file, ((placed, place),))


def cut_off(reading: Reading) -> Evidence | None:
    """A traceback with which a log ends, without its exception, if any.

    Of several, one outside of collective operations, in which ranks wait for the one that failed.
    """
    cut = [
        each
        for each in reading.cut
        if is_open(reading, each.file, each.record.at)
        and not is_of_launcher(tuple(frame.file for frame in each.record.frames))
        and _is_end(each, reading.last_lines.get(each.file, ()))
    ]
    return min(cut, key=lambda each: waits(each.record.frames), default=None)


def _is_end(cut: Evidence, lines: Sequence[Written]) -> bool:
    """Whether a log ends with a traceback, and at most a few words of a person."""
    source = cut.record.frames[-1].source
    later = (line.text for line in lines if line.number > cut.lines[0][0])
    after = [text for text in later if not source or text.strip() != source]
    told = [text for text in after if not text.startswith(("  ", "\t", "\u2502", "|"))]
    signs = (IS_PROGRESS, STEP, OF_PROGRAM, GOES_WELL)
    is_program = any(words.search(text) for text in after for words in signs)
    return len(told) <= MOST_AFTER_CUT and not is_program


def may_be_of(told: Failure, cut: Evidence) -> bool:
    """Whether somebody's words above a traceback without its exception may be about it."""
    is_words = told.evidence.is_spoken or told.evidence.lines[0][0] <= AT_TOP
    is_near = told.evidence.file == cut.file and told.evidence.lines[0][0] < cut.record.at
    return is_words and is_near and told.finding.role is not Role.TEARDOWN


def _in_title(cut: Evidence, reading: Reading) -> Evidence | None:
    """The exception whose message is a text's first line, and whose type is there or in Ray's.

    Without a type, that line alone; or what a person's words above the traceback quote.
    """
    title = next(iter(reading.first_lines.get(cut.file, ())), None)
    if title is None or title.number >= cut.record.at:
        return None
    lines = reading.last_lines.get(cut.file, ())
    if OF_PROGRAM.search(title.text) or OVER.search(title.text):
        return None
    typed = TITLED.match(title.text)
    typed = None if typed and OF_SOMEBODY.search(typed["said"]) else typed
    by_ray = (OF_RAY.search(line.text) for line in lines if OF_MESSAGE.search(title.text))
    kind = typed or next(filter(None, by_ray), None)
    quoted = QUOTED.search(title.text)
    if kind is None and quoted is None and not OF_MESSAGE.search(title.text):
        return None
    message = typed["said"] if typed else title.text.strip().lstrip("'\"`")
    if kind is None and quoted is not None:
        message = f"{quoted['said'][:1].upper()}{quoted['said'][1:]}"
    record = FailureRecord(
        title.rank,
        float(title.number),
        exception=f"builtins.{kind['kind']}" if kind else "",
        message=message,
    )
    return Evidence(record, cut.file, ((title.number, title.text.strip()),), is_spoken=True)


def with_words(
    cut: Evidence, told: Sequence[Failure], reading: Reading, catalogue: Sequence[KnownFailure]
) -> Failure:
    """The failure of a traceback without its exception, with what somebody's words add.

    A known failure that the traceback doesn't fit is another one.
    """
    named = [failure for failure in told if failure.finding.record.exception]
    if not named and (titled := _in_title(cut, reading)) is not None:
        finding = finding_of(titled.record, catalogue)
        is_message = bool(titled.record.exception or QUOTED.search(titled.lines[0][1]))
        if is_message or finding.entry or next_step(titled.record).rule not in NO_ANSWER:
            named = [Failure(finding, titled)]
    if not named:
        return Failure(finding_of(cut.record, catalogue), cut)
    record = cut.record
    record = replace(named[0].finding.record, frames=record.frames, user_files=record.user_files)
    finding = finding_of(record, catalogue)
    if named[0].finding.entry and not finding.entry:
        return named[0]
    lines = (*cut.lines, *named[0].evidence.lines[-1:])
    return Failure(finding, replace(cut, record=record, lines=lines, is_spoken=True))
