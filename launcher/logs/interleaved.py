"""Finds messages of two ranks mixed in a file, a few characters at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from ..catalogue.entry import Finding, KnownFailure, Role
from ..catalogue.regex import ANY, NUMBER, plain
from ..catalogue.signature import Signature
from ..evidence.failure_record import FailureRecord
from .attempts import MOST_AFTER_SEVERE, Evidence, Reading
from .exception_lines import BareException, stated_exception
from .judgement import Failure
from .lines import Line

MOST_INTERLEAVED = 40
"""Maximum places with mixed lines of two ranks to keep."""
LINES_INTERLEAVED = 6
"""Number of mixed lines of two ranks to read together."""
NEAR = 40
"""Maximum lines of two ranks' mixed tracebacks."""
TRIGGER = r"E[^\n]{0,8}r[^\n]{0,8}r[^\n]{0,8}o[^\n]{0,8}r"
"""Matches `Error` with other characters in between."""
IS_SHUFFLED = re.compile(r"E.{0,8}?r.{0,8}?r.{0,8}?o.{0,8}?r")
VARYING = re.compile(rf"\([^()]*\)|\S*(?:/\S*)+|{ANY}|\b{NUMBER}\b|[()]")
"""Varying parts of a message from `plain`."""
LONG = 8
"""Characters of a part that can't occur by chance; if intact, nothing was mixed."""
SHORTEST = 24
"""Minimum characters of a message to find, in order."""
TIGHTEST, LOOSEST = 1.15, 2.6
"""Allowed ratio of text length to characters found: above a single rank's text, and not far above
two ranks' texts."""
LONGEST_RUN = 10
"""Maximum run of adjacent characters of a message, if two ranks' are mixed."""
LONGEST = 12_000
"""Maximum characters to search."""
LONGEST_PAIR, MOST_STATES = 400, 20_000
"""Maximum characters of a line to separate into two equal texts, and maximum states to try."""


def keep_interleaved(reading: Reading, file: str, line: Line, before: Iterable[str]) -> bool:
    """Keeps a line that looks like a mix of two ranks' output, and the few lines after it.

    Returns:
        Whether a mixed place begins with this line.
    """
    kept = reading.shuffled
    if kept and kept[-1][0] == file and line.number - kept[-1][1] < LINES_INTERLEAVED:
        _, number, text = kept[-1]
        kept[-1] = (file, number, f"{text}\n{line.text}")
        return False
    if not line.is_match or not IS_SHUFFLED.search(line.text):
        return False
    kept.append((file, line.number, "\n".join([*before, line.text])))
    del kept[:-MOST_INTERLEAVED]
    return True


def with_interleaved(
    failures: Sequence[Failure], reading: Reading, catalogue: Sequence[KnownFailure]
) -> list[Failure]:
    """Replaces fragments of mixed messages.

    Only if nothing else is known (test_two_ranks_letters_in_turns).
    """
    separated = list(_separated(reading, catalogue))
    whole = [
        failure for failure in failures if not any(_is_near(failure, other) for other in separated)
    ]
    return [*whole, *separated]


def _is_near(failure: Failure, other: Failure) -> bool:
    """Whether an exception may be a fragment of two ranks' mixed output."""
    distance = abs(failure.finding.record.at - other.finding.record.at)
    return failure.evidence.file == other.evidence.file and distance < NEAR


def _separated(reading: Reading, catalogue: Sequence[KnownFailure]) -> Iterator[Failure]:
    """Known failures in two ranks' mixed messages, outside of intact tracebacks."""
    clean = [
        (event.file, event.lines[0][0], event.lines[-1][0])
        for event in reading.events
        if event.record.frames and not event.is_bare
    ]
    for file, number, text in reading.shuffled:
        if any(file == other and low - NEAR <= number <= high for other, low, high in clean):
            continue
        evidence = ((number, text),)
        if (entry := _entry_in(text, catalogue)) is not None:
            record = FailureRecord(None, float(number), message=text)
            yield Failure(Finding(record, entry.role, entry), Evidence(record, file, evidence))
        elif (pair := doubled_exception(text)) and reading.is_last(file, number, MOST_AFTER_SEVERE):
            record = FailureRecord(None, float(number), exception=pair.kind, message=pair.message)
            yield Failure(Finding(record, Role.INITIATING, None), Evidence(record, file, evidence))


def _entry_in(text: str, catalogue: Sequence[KnownFailure]) -> KnownFailure | None:
    """The known failure whose message is mixed with other characters in a text.

    Of several, takes the one with the most characters found; None if any has further parts that
    aren't found, as then they can't be distinguished. A message's words in order, among at most 2.6
    times as many characters, don't occur by chance: ordinary text has other characters between.
    """
    squeezed = "".join(text.split())[:LONGEST]
    candidates = [
        ((sign.weight(None), sum(map(len, parts))), entry, _has_other_parts(sign, squeezed))
        for entry in catalogue
        for sign in entry.signatures
        if sign.message is not None
        for parts in _fixed(sign.message.pattern)
        if _is_mixed_in(parts, squeezed)
    ]
    sure = [(weight, entry) for weight, entry, is_whole in candidates if is_whole]
    known = {entry.id for _, entry in sure}
    if not sure or any(entry.id not in known for _, entry, _ in candidates):
        return None
    return max(sure, key=lambda pair: pair[0])[1]


def _has_other_parts(sign: Signature, text: str) -> bool:
    """Whether the fixed texts of a signature's other parts occur too."""
    names = [name for name in (sign.file, sign.function) if name is not None]
    patterns = [
        pattern.pattern for pattern in (sign.source, sign.log, sign.context) if pattern is not None
    ]
    return all(_place(name, text, 0) for name in names) and all(
        any(_spans(parts, text) is not None for parts in _fixed(pattern, 1)) for pattern in patterns
    )


@cache
def _fixed(pattern: str, shortest: int = SHORTEST) -> tuple[tuple[str, ...], ...]:
    """The fixed texts of each alternative of a pattern, without white space."""
    result = []
    for text in plain(pattern):
        parts = VARYING.split(text)
        squeezed = tuple("".join(part.split()) for part in parts if part.strip())
        if sum(map(len, squeezed)) >= shortest:
            result.append(squeezed)
    return tuple(result)


def _is_mixed_in(parts: Sequence[str], text: str) -> bool:
    """Whether the parts are in the text, in order, and every long part is mixed."""
    if any(len(part) >= LONG and part in text for part in parts):
        return False
    spans = _spans(parts, text)
    if spans is None or max(span.run for span in spans) > LONGEST_RUN:
        return False
    return any(
        span.end - span.start >= TIGHTEST * len(part)
        for part, span in zip(parts, spans, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """The places of letters in a text, from `start` to `end`, with a longest run."""

    start: int
    end: int
    run: int


def _spans(parts: Sequence[str], text: str) -> list[_Span] | None:
    """The places of all parts, in order; None if one is missing."""
    at, spans = 0, []
    for part in parts:
        place = _place(part, text, at)
        if place is None:
            return None
        at = place.end
        spans.append(place)
    return spans


def _place(letters: str, text: str, low: int) -> _Span | None:
    """The span of the letters in the text, in order and close together, from `low` on."""
    most = int(len(letters) * LOOSEST) + 2
    start = text.find(letters[0], low)
    while start >= 0:
        at, run, longest = start, 1, 1
        for letter in letters[1:]:
            before, at = at, text.find(letter, at + 1, start + most)
            if at < 0:
                break
            run = run + 1 if at == before + 1 else 1
            longest = max(longest, run)
        else:
            return _Span(start, at + 1, longest)
        start = text.find(letters[0], start + 1)
    return None


def doubled_exception(text: str) -> BareException | None:
    """The exception written by two ranks at once, if their letters can be separated.

    Handles a line with two mixed copies of one text; differing text after them stays as it is.
    """
    return next(filter(None, map(_doubled_exception, reversed(text.split("\n")))), None)


def _doubled_exception(line: str) -> BareException | None:
    if not IS_SHUFFLED.search(line):
        return None
    best: tuple[int, BareException] | None = None
    states, seen = [(0, "", "")], set[tuple[int, str]]()
    while states and len(seen) < MOST_STATES:
        at, waiting, whole = states.pop()  # one rank is ahead by the letters that wait
        if (at, waiting) in seen or at > LONGEST_PAIR:
            continue
        seen.add((at, waiting))
        if (
            whole
            and not waiting
            and (best is None or at > best[0])
            and (exception := stated_exception(whole))
        ):
            best = at, exception
        if at == len(line):
            continue
        states.append((at + 1, waiting + line[at], whole + line[at]))
        if waiting[:1] == line[at]:
            states.append((at + 1, waiting[1:], whole))
    return best[1] if best else None
