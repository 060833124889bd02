"""Messages of two ranks that were written into one file at the same time, a few letters each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ..catalogue.entry import KnownFailure
from ..catalogue.regex_as_prose import ANY, NUMBER, plain
from ..catalogue.signature import Signature

TRIGGER = r"E[^\n]{0,8}r[^\n]{0,8}r[^\n]{0,8}o[^\n]{0,8}r"
"""What `Error` may have become."""
IS_SHUFFLED = re.compile(r"E.{0,8}?r.{0,8}?r.{0,8}?o.{0,8}?r")
VARYING = re.compile(rf"\([^()]*\)|\S*(?:/\S*)+|{ANY}|\b{NUMBER}\b|[()]")
"""What isn't the same in all messages that a pattern matches, as `plain` tells it."""
LONG = 8
"""Characters of a part that isn't there by chance; where it stands whole, nothing is shuffled."""
SHORTEST = 24
"""Characters of a message that must be found, in their order."""
TIGHTEST, LOOSEST = 1.15, 2.6
"""Characters among which each of them stands, on the average: more than in a text of one rank, and
not many more than in two ranks'."""
LONGEST = 12_000
"""Characters that are looked through."""


def entry_in(text: str, catalogue: Sequence[KnownFailure]) -> KnownFailure | None:
    """The known failure whose message stands in a text among another's characters.

    Of several the one of which most is there; none where one of them can't be told from another,
    because it has marks beside its message that aren't found. The words of a message in their
    order, among at most 2.6 times as many characters, don't come about otherwise: ordinary text has
    other letters in between.
    """
    squeezed = "".join(text.split())[:LONGEST]
    found = [
        ((sign.weight(None), sum(map(len, parts))), entry, _has_the_rest(sign, squeezed))
        for entry in catalogue
        for sign in entry.signatures
        if sign.message is not None
        for parts in _fixed(sign.message.pattern)
        if _are_within(parts, squeezed)
    ]
    sure = [(weight, entry) for weight, entry, is_whole in found if is_whole]
    known = {entry.id for _, entry in sure}
    if not sure or any(entry.id not in known for _, entry, _ in found):
        return None
    return max(sure, key=lambda pair: pair[0])[1]


def _has_the_rest(sign: Signature, text: str) -> bool:
    """Whether what a signature has beside its message is there too, as far as it is fixed."""
    names = [name for name in (sign.file, sign.function) if name is not None]
    patterns = [
        pattern.pattern for pattern in (sign.source, sign.log, sign.context) if pattern is not None
    ]
    return all(_place(name, text, 0) for name in names) and all(
        any(_are_placed(parts, text) is not None for parts in _fixed(pattern, 1))
        for pattern in patterns
    )


@cache
def _fixed(pattern: str, shortest: int = SHORTEST) -> tuple[tuple[str, ...], ...]:
    """The fixed parts of each alternative of a pattern, without white space."""
    result = []
    for text in plain(pattern):
        parts = VARYING.split(text)
        squeezed = tuple("".join(part.split()) for part in parts if part.strip())
        if sum(map(len, squeezed)) >= shortest:
            result.append(squeezed)
    return tuple(result)


def _are_within(parts: Sequence[str], text: str) -> bool:
    """Whether the parts stand in the text one after the other, every long one shuffled."""
    if any(len(part) >= LONG and part in text for part in parts):
        return False
    spans = _are_placed(parts, text)
    return spans is not None and max(spans) >= TIGHTEST


def _are_placed(parts: Sequence[str], text: str) -> list[float] | None:
    """For each part among how many characters each of its own stands; None if one isn't there."""
    at, spans = 0, []
    for part in parts:
        place = _place(part, text, at)
        if place is None:
            return None
        at = place[1]
        spans.append((place[1] - place[0]) / len(part))
    return spans


def _place(letters: str, text: str, low: int) -> tuple[int, int] | None:
    """Where the letters stand in the text in their order and close together, from `low` on."""
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
