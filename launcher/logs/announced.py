"""Finds what a person calls the error in a text without an exception."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from .exception_lines import HANDLED, LONGEST_LINE, MILD, SURELY_RAISED
from .progress_signs import STEP, Written
from .traceback_parts import FRAME

LOGGED = re.compile(r"\d\d:\d\d:\d\d|\b(?:INFO|DEBUG|WARN\w*|ERROR)\b|[{}]|=.*=|^\W*\[|^\s*#")
"""Words of a program instead."""
OF_ERROR = (
    r"(?:\b(?:errors?|exceptions?|crash\w*|fail(?:s|ed|ing|ure)?|issues?|problems?)\b"
    r"|\u62a5\u9519|\u9519\u8bef|\u5f02\u5e38)"
)
OF_PERSON = (
    r"\b(?:message|I|I'm|we|my|our|get|got|getting|met|see|following|this|below|here|encounter\w*"
    r"|receiv\w*)\b"
)
ANNOUNCED = re.compile(
    rf"{OF_PERSON}.*{OF_ERROR}[^:\uff1a]{{0,40}}[:\uff1a]\s*$"
    r"|(?:\u62a5\u9519|\u9519\u8bef|\u5f02\u5e38)[^:\uff1a]{0,40}[:\uff1a]\s*$"
    r"|\bthe following (?:error|exception)\b[^:\uff1a]*$"
    r"|\b(?:fails|failed|crashes|ends|stops|dies) with (?:the |this |an? )?(?:following )?"
    r"(?:errors?|exceptions?|messages?)\W*$"
    r"|^\W*(?:(?:the|full|main) )?(?:error|exception)s?(?: (?:message|log|output))?\W*$"
    r"|(?:\u62a5\u9519|\u9519\u8bef)(?:\u4fe1\u606f|\u5982\u4e0b)?\W*$",
    re.IGNORECASE,
)
"""A person's sentence with a colon, or a heading, above the message of an error."""
GOES_WELL = re.compile(
    r"\b(?:0|without|(?:not|n't) affect|not? (?:an )?errors?|success\w*|works|finish\w*"
    r"|complet\w*)\b"
    r"|\u6210\u529f|\u6b63\u5e38|\u5b8c\u6210",
    re.IGNORECASE,
)
"""Words of a sentence on what went well."""
INLINE = re.compile(
    rf"(?:{OF_ERROR}|\u95ee\u9898)(?:[^:\uff1a]{{0,20}}[:\uff1a]\s*(?P<said>\S.{{20,}})"
    r"|[^:\uff1a]{0,40}?(?P<attribute>'\w+' object has no attribute '\w+'))",
    re.IGNORECASE,
)
"""The same with the message on its line."""
COMMAND = re.compile(
    r"[$#!*-]|>>> |\d+[.)] |(?:export|python[\d.]*|torchrun|deepspeed|accelerate|srun|bash|sh) "
)
WORDS_OF = re.compile(r"[A-Za-z]{2,}\W+[A-Za-z]{2,}|[\u4e00-\u9fff]{4}")
"""Words of a message, not only numbers."""
DRAWN = re.compile(r"^[\W_]*$|^\W*```\w*$")
"""Rules, and the marks around code."""
WRITER = re.compile(
    r"\bI(?:'m|'ve)?(?= [a-z]+\b(?![/.]))|\b(?:[Mm]y|[Aa]nyone|[Tt]hanks|[Hh]ello)\b"
    r"|[?\uff1f]\W*$|[\u4e00-\u9fff]{4}|^There (?:is|are) "
)
"""Words of a person, not of a program."""
MOST_ANNOUNCED = 12
"""Maximum lines from an announced message to the end of the text."""


def told(lines: Sequence[Written]) -> tuple[Written | None, Sequence[Written]]:
    """The line below somebody's words that announce an error, and texts within such lines.

    A text with steps of a training announces none: the words may be a program's.
    """
    if any(STEP.search(line.text) for line in lines):
        return None, ()
    return _announced(lines), tuple(_within(lines[-MOST_ANNOUNCED:]))


def is_persons(line: str) -> bool:
    """Whether a person wrote a line, and no program."""
    return WRITER.search(line) is not None and LOGGED.search(line) is None


def is_of_failure(line: str) -> bool:
    """Whether a line may report a failure, and isn't a warning, a step, or handled."""
    return not (MILD.search(line) or HANDLED.search(line) or STEP.search(line))


def _within(lines: Sequence[Written]) -> Iterator[Written]:
    """The texts that somebody's words announce as an error, in the same line."""
    for line in lines:
        match = INLINE.search(line.text, 0, LONGEST_LINE)
        said = match is not None and match.start() > 0 and not HANDLED.search(line.text)
        if match and said and not LOGGED.search(line.text[: match.start()]):
            yield replace(line, text=match["attribute"] or match["said"])


def _announced(lines: Sequence[Written]) -> Written | None:
    """The line below somebody's words that announce an error, near the end of a text."""
    texts = [line for line in lines[-MOST_ANNOUNCED:] if not DRAWN.match(line.text)]
    for above, line in pairwise(texts):
        later = (each.text for each in lines if each.number >= line.number)
        if (
            len(above.text) < LONGEST_LINE
            and ANNOUNCED.search(above.text)
            and not (LOGGED.search(above.text) or GOES_WELL.search(above.text))
            and not SURELY_RAISED.match(above.text)
            and is_of_failure(above.text)
            and not (COMMAND.match(line.text) or FRAME.match(line.text))
            and WORDS_OF.search(line.text)
            and not any(map(HANDLED.search, later))
        ):
            return line
    return None
