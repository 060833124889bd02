"""Finds the known failure whose message a text is, without the exception's type.

The longest fixed text of a known message identifies it, as the rest are names and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from ..catalogue.entry import Finding, KnownFailure
from ..catalogue.regex import plain
from ..catalogue.signature import Pattern, Signature
from ..evidence.failure_record import FailureRecord
from .announced import is_of_failure
from .exception_lines import CLOSING, LONGEST_LINE, closing
from .interleaved import VARYING

LEAST, WORDS = 20, 4
"""Minimum characters and words of a fixed text that identifies a message."""
TORN = re.compile(r"^\w*(?:Error|Exception): (?=\S)")
"""The end of an exception's cut name."""
PHRASE = re.compile(r"[A-Za-z']{2,}(?: [A-Za-z']+){2}")
"""Words in a pattern that identify it without the exception's type."""
SHORT, LONGEST_NAME = 12, 60
"""Minimum characters of a message's beginning; maximum of a name or number in it."""
WORD = re.compile(r"(?<!\w)[\w'\"`]")
"""The beginning of a word."""


def by_message(
    line: str,
    catalogue: Sequence[KnownFailure],
    record: FailureRecord,
    *,
    is_first: bool = True,
    is_last: bool = True,
    is_within: bool = False,
) -> Finding | None:
    """The known failure whose message a line is or is part of, if unique.

    Args:
        line: a line of a log.
        catalogue: the known failures.
        record: other known facts.
        is_first: whether the line may be a message or its end.
        is_last: whether the line may be the beginning of a message.
        is_within: whether a message may stand within the line.
    """
    if len(line) > LONGEST_LINE:
        return None
    text = TORN.sub("", " ".join(line.split()).removesuffix("...").removeprefix("..."))
    if not is_of_failure(text):
        return None
    if is_within:
        text = _within(text, catalogue)
        if not text:
            return None
    whole: dict[str, Finding] = {}
    partial: dict[str, Finding] = {}
    for entry, sign, pattern in _of_messages(catalogue):
        stated = replace(record, exception=f"builtins.{sign.exception}", message=text)
        finding = Finding(stated, entry.role, entry)
        if is_first and _is_begun(text, pattern) and sign.matches(stated):
            whole[entry.id] = finding
        elif (is_first and _is_end(text, pattern)) or (is_last and _is_beginning(text, pattern)):
            partial[entry.id] = finding
    findings = whole or partial
    return next(iter(findings.values())) if len(findings) == 1 else None


def by_line(line: str, catalogue: Sequence[KnownFailure], record: FailureRecord) -> Finding | None:
    """The known failure that has a line like this beside an exception, if unique."""
    text = " ".join(line.split())
    matching = [
        entry
        for entry in catalogue
        if any(sign.log is not None and sign.log.search(text) for sign in entry.signatures)
    ]
    if len(matching) != 1:
        return None
    return Finding(replace(record, message=text), matching[0].role, matching[0])


def _of_messages(
    catalogue: Sequence[KnownFailure],
) -> Iterator[tuple[KnownFailure, Signature, Pattern]]:
    """Signatures that a message alone can match, with the message's pattern."""
    for entry in catalogue:
        for sign in entry.signatures:
            others = (sign.through, sign.wanted_by, sign.log, sign.context, sign.signal)
            pattern = sign.message
            is_alone = sign.exception and others == (None,) * len(others)
            if is_alone and pattern is not None and PHRASE.search(pattern.pattern):
                yield entry, sign, pattern


def _is_begun(text: str, pattern: Pattern) -> bool:
    """Whether a text begins with a message."""
    match = pattern.search(text)
    return match is not None and match.start() == 0


def _within(text: str, catalogue: Sequence[KnownFailure]) -> str:
    """The rest of a sentence from the known message within it on; empty if it has none."""
    for _, _, pattern in _of_messages(catalogue):
        for _, part in _texts(pattern.pattern):
            place = text.find(part)
            starts = [it.start() for it in WORD.finditer(text, max(0, place - LONGEST_NAME), place)]
            for start in (place, *reversed(starts)) if place >= 0 else ():
                rest, opening = text[start:], text[start - 1 : start]
                if not _is_begun(rest, pattern):
                    continue
                end = closing(rest, opening) if opening in CLOSING else None
                return rest if end is None else rest[:end]
    return ""


def _is_end(text: str, pattern: Pattern) -> bool:
    """Whether a text begins inside of a message, and contains the rest of its fixed text."""
    for message, part in _texts(pattern.pattern):
        place = part.find(text[:LEAST])
        is_rest = place >= 0 and text.startswith(part[place:])
        if text[:SHORT] in message[1:] and (part in text or is_rest):
            return True
    return False


def _is_beginning(text: str, pattern: Pattern) -> bool:
    """Whether a text ends within the fixed text of a message."""
    return any(
        0 <= (place := text.rfind(part[:LEAST])) <= message.find(part) + LONGEST_NAME
        and part.startswith(text[place:])
        for message, part in _texts(pattern.pattern)
    )


@cache
def _texts(pattern: str) -> tuple[tuple[str, str], ...]:
    """The alternatives of a pattern as texts, with the longest fixed text of each."""
    texts = [(text, max(map(str.strip, VARYING.split(text)), key=len)) for text in plain(pattern)]
    return tuple(
        (text, part) for text, part in texts if len(part) >= LEAST and len(part.split()) >= WORDS
    )
