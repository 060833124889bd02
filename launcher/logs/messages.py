"""Recognizes known failures by message alone, without an exception's name, or cut off.

The longest fixed text of a message identifies it, as the rest are names and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from ..catalogue.entry import Finding, KnownFailure
from ..catalogue.regex_as_prose import plain
from ..catalogue.signature import Signature
from ..evidence.failure_record import FailureRecord
from .attempts import Evidence, Reading
from .exception_lines import HANDLED, LONGEST_LINE, MILD, SPOKEN
from .failures import Failure
from .interleaved import VARYING
from .progress_signs import STEP

LEAST, WORDS = 20, 4
"""Minimum characters and words of a fixed text that identifies a message."""
TORN = re.compile(r"^\w*(?:Error|Exception): (?=\S)")
"""The end of an exception's cut name."""
PHRASE = re.compile(r"[A-Za-z']{2,}(?: [A-Za-z']+){2}")
"""Words in a pattern that identify it without the exception's type."""
SHORT, LONGEST_NAME = 12, 60
"""Minimum characters of a message's beginning; maximum of a name or number in it."""


def by_message(
    line: str,
    catalogue: Sequence[KnownFailure],
    record: FailureRecord,
    *,
    is_first: bool = True,
    is_last: bool = True,
) -> Finding | None:
    """The known failure whose message a line is or is part of, if unique.

    Args:
        line: a line of a log.
        catalogue: the known failures.
        record: other known facts.
        is_first: whether the line may be a message or its end.
        is_last: whether the line may be the beginning of a message.
    """
    if len(line) > LONGEST_LINE:
        return None
    text = TORN.sub("", " ".join(line.split()).removesuffix("...").removeprefix("..."))
    if not is_of_failure(text):
        return None
    candidates = [
        (entry, sign, replace(record, exception=f"builtins.{sign.exception}", message=text))
        for entry, sign in _of_messages(catalogue)
    ]
    begun = [candidate for candidate in candidates if is_first and _is_begun(text, candidate[1])]
    sure = [candidate for candidate in begun if candidate[1].matches(candidate[2])]
    known = {
        entry.id: (entry, candidate)
        for entry, sign, candidate in sure or candidates
        if sure or (is_first and _is_end(text, sign)) or (is_last and _is_beginning(text, sign))
    }
    if len(known) != 1:
        return None
    entry, candidate = next(iter(known.values()))
    return Finding(candidate, entry.role, entry)


def failures_by_message(reading: Reading, catalogue: Sequence[KnownFailure]) -> Iterator[Failure]:
    """Known failures whose messages begin or end with a text."""
    for file, lines in reading.last_lines.items():
        if file in reading.ends:
            continue
        for line in dict.fromkeys((lines[0], lines[-1])) if lines else ():
            if SPOKEN.search(line.text, 0, LONGEST_LINE):
                continue
            record = FailureRecord(None, float(line.number))
            ends = {"is_first": line is lines[0], "is_last": line is lines[-1]}
            finding = by_message(line.text, catalogue, record, **ends)
            if finding is not None and reading.is_last(file, line.number, len(lines)):
                place = (line.number, line.text)
                yield Failure(finding, Evidence(finding.record, file, (place,), is_spoken=True))


def is_of_failure(line: str) -> bool:
    """Whether a line may report a failure, and isn't a warning, a step, or handled."""
    return not (MILD.search(line) or HANDLED.search(line) or STEP.search(line))


def _of_messages(catalogue: Sequence[KnownFailure]) -> Iterator[tuple[KnownFailure, Signature]]:
    """Signatures that a message alone can match."""
    for entry in catalogue:
        for sign in entry.signatures:
            others = (sign.through, sign.wanted_by, sign.log, sign.context, sign.signal)
            is_phrase = sign.message is not None and PHRASE.search(sign.message.pattern)
            if sign.exception and is_phrase and others == (None,) * len(others):
                yield entry, sign


def _is_begun(text: str, sign: Signature) -> bool:
    """Whether a text begins with the message of a signature."""
    match = None if sign.message is None else sign.message.search(text)
    return match is not None and match.start() == 0


def _is_end(text: str, sign: Signature) -> bool:
    """Whether a text begins inside of a signature's message."""
    return any(
        text[:SHORT] in whole[1:] and (part in text or _goes_on(text, part))
        for whole, part in _telling(sign)
    )


def _goes_on(text: str, part: str) -> bool:
    """Whether a text begins inside of a fixed text and contains the rest."""
    place = part.find(text[:LEAST])
    return place >= 0 and text.startswith(part[place:])


def _is_beginning(text: str, sign: Signature) -> bool:
    """Whether a text ends within the fixed text of a signature's message."""
    return any(
        0 <= (place := text.rfind(part[:LEAST])) <= whole.find(part) + LONGEST_NAME
        and part.startswith(text[place:])
        for whole, part in _telling(sign)
    )


@cache
def _texts(pattern: str) -> tuple[tuple[str, str], ...]:
    """The alternatives of a pattern as texts, with the longest fixed text of each."""
    texts = [(text, max(map(str.strip, VARYING.split(text)), key=len)) for text in plain(pattern)]
    return tuple(
        (text, part) for text, part in texts if len(part) >= LEAST and len(part.split()) >= WORDS
    )


def _telling(sign: Signature) -> tuple[tuple[str, str], ...]:
    """The literal texts in a signature's message."""
    return () if sign.message is None else _texts(sign.message.pattern)
