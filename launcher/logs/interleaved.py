"""Finds messages of two ranks mixed in a file, a few characters at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ..catalogue.entry import KnownFailure
from ..catalogue.regex_as_prose import ANY, NUMBER, plain
from ..catalogue.signature import Signature
from .exception_lines import BareException, stated_exception

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


def entry_in(text: str, catalogue: Sequence[KnownFailure]) -> KnownFailure | None:
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
