"""The known words that are nearest to one that isn't known."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

SHOWN = 3
"""Known words that an answer names."""
LIKE = 0.6
"""Likeness from which on the nearest word is taken as the intended one."""


def nearest(
    word: object, known: Iterable[object], shown: int = SHOWN, key: Callable[[str], str] = str.lower
) -> list[str]:
    """The known words that are most like a word, the likest first.

    The `key` extracts the part of a word to be compared; by default, case is ignored.
    """
    text, words = key(str(word)), dict.fromkeys(map(str, known))
    return sorted(words, key=lambda each: -_likeness(text, key(each)))[:shown]


def near(word: object, known: Iterable[object], key: Callable[[str], str] = str.lower) -> str:
    """A hint with the nearest known words; empty if none are known."""
    words = nearest(word, known, key=key)
    if not words:
        return ""
    likest, others = words[0], ", ".join(f"`{each}`" for each in words[1:])
    if _ratio(key(str(word)), key(likest)) < LIKE:
        return f"the nearest are {', '.join(f'`{each}`' for each in words)}"
    return f"did you mean `{likest}`?" + (f" Near it are {others}" if others else "")


def meant(word: object, known: Iterable[object], likeness: float = 0.75) -> str:
    """A hint with the intended word; empty if no known word is close to the misspelt one.

    The `likeness` is the least ratio of `difflib`, from 0 to 1; `plna` for `plan` has 0.75.
    """
    for likest in nearest(word, known, 1):
        if _ratio(str(word).lower(), likest.lower()) >= likeness:
            return f"did you mean `{likest}`?"
    return ""


def _ratio(word: str, known: str) -> float:
    return difflib.SequenceMatcher(None, word, known).ratio()


def _likeness(word: str, known: str) -> float:
    ratio = _ratio(word, known)
    parts = {part for part in _parts(word) if len(part) > 1}
    if ratio >= LIKE or not parts:
        return ratio
    shared = len(parts & set(_parts(known))) / len(parts)
    likest = max(_ratio(word, part) for part in _parts(known))
    return max(ratio, LIKE * max(shared, likest) + ratio / 10)


def _parts(word: str) -> list[str]:
    return word.replace("_", "-").replace(" ", "-").split("-")
