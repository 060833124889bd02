"""Finds messages of two ranks that were mixed in a file, a few characters at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ..catalogue.entry import KnownFailure
from ..catalogue.regex_as_prose import ANY, NUMBER, plain
from ..catalogue.signature import Signature

TRIGGER = r"E[^\n]{0,8}r[^\n]{0,8}r[^\n]{0,8}o[^\n]{0,8}r"
"""Matches `Error` with other characters in between."""
IS_SHUFFLED = re.compile(r"E.{0,8}?r.{0,8}?r.{0,8}?o.{0,8}?r")
VARYING = re.compile(rf"\([^()]*\)|\S*(?:/\S*)+|{ANY}|\b{NUMBER}\b|[()]")
"""The varying parts of a message that `plain` returns for a pattern."""
LONG = 8
"""Characters of a part that can't occur by chance; if it is intact, nothing was mixed."""
SHORTEST = 24
"""Characters of a message that must be found, in order."""
TIGHTEST, LOOSEST = 1.15, 2.6
"""How many characters of the text there may be per character found, on average: more than in a text
of one rank, and not many more than in a text of two ranks."""
LONGEST = 12_000
"""Characters that are searched at most."""


def entry_in(text: str, catalogue: Sequence[KnownFailure]) -> KnownFailure | None:
    """The known failure whose message is in a text, mixed with other characters.

    Of several, the one with the most characters found. None if any of them has further parts that
    aren't found, so that they can't be distinguished. The words of a message in order, among at
    most 2.6 times as many characters, don't occur by chance: ordinary text has other characters in
    between.
    """
    squeezed = "".join(text.split())[:LONGEST]
    found = [
        ((sign.weight(None), sum(map(len, parts))), entry, _has_other_parts(sign, squeezed))
        for entry in catalogue
        for sign in entry.signatures
        if sign.message is not None
        for parts in _fixed(sign.message.pattern)
        if _is_mixed_in(parts, squeezed)
    ]
    sure = [(weight, entry) for weight, entry, is_whole in found if is_whole]
    known = {entry.id for _, entry in sure}
    if not sure or any(entry.id not in known for _, entry, _ in found):
        return None
    return max(sure, key=lambda pair: pair[0])[1]


def _has_other_parts(sign: Signature, text: str) -> bool:
    """Whether the fixed text of a signature's other parts is found too."""
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
    return spans is not None and max(spans) >= TIGHTEST


def _spans(parts: Sequence[str], text: str) -> list[float] | None:
    """For each part, the characters of text per character of its own; None if one is missing."""
    at, spans = 0, []
    for part in parts:
        place = _place(part, text, at)
        if place is None:
            return None
        at = place[1]
        spans.append((place[1] - place[0]) / len(part))
    return spans


def _place(letters: str, text: str, low: int) -> tuple[int, int] | None:
    """The span of the letters in the text, in order and close together, from `low` on."""
    most = int(len(letters) * LOOSEST) + 2
    start = text.find(letters[0], low)
    while start >= 0:
        at = start
        for letter in letters[1:]:
            at = text.find(letter, at + 1, start + most)
            if at < 0:
                break
        else:
            return start, at + 1
        start = text.find(letters[0], start + 1)
    return None
