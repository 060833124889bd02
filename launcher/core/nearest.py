"""The known words that are most similar to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

SHOWN = 3
"""Known words that an answer names."""
SIMILAR = 0.6
"""Similarity from which on the nearest word is taken as the intended one."""
MISSPELT = 0.75
"""Similarity of a misspelt word to the intended one, at least; `plna` for `plan` has 0.75."""


def nearest(
    word: object, known: Iterable[object], shown: int = SHOWN, key: Callable[[str], str] = str.lower
) -> list[str]:
    """The known words that are most similar to a word, the best match first.

    The `key` extracts the part of a word to be compared; by default, case is ignored.
    """
    text, words = key(str(word)), dict.fromkeys(map(str, known))
    return sorted(words, key=lambda each: -_similarity(text, key(each)))[:shown]


def near(word: object, known: Iterable[object], key: Callable[[str], str] = str.lower) -> str:
    """A hint with the nearest known words; empty if none are known."""
    words = nearest(word, known, key=key)
    if not words:
        return ""
    closest, others = words[0], ", ".join(f"`{each}`" for each in words[1:])
    if _ratio(key(str(word)), key(closest)) < SIMILAR:
        return f"the nearest are {', '.join(f'`{each}`' for each in words)}"
    return f"did you mean `{closest}`?" + (f" Near it are {others}" if others else "")


def meant(word: object, known: Iterable[object]) -> str:
    """A hint with the intended word; empty if no known word is close to the misspelt one."""
    for closest in nearest(word, known, 1):
        if _ratio(str(word).lower(), closest.lower()) >= MISSPELT:
            return f"did you mean `{closest}`?"
    return ""


def _ratio(word: str, known: str) -> float:
    return difflib.SequenceMatcher(None, word, known).ratio()


def _similarity(word: str, known: str) -> float:
    ratio = _ratio(word, known)
    parts = {part for part in _parts(word) if len(part) > 1}
    if ratio >= SIMILAR or not parts:
        return ratio
    shared = len(parts & set(_parts(known))) / len(parts)
    closest = max(_ratio(word, part) for part in _parts(known))
    return max(ratio, SIMILAR * max(shared, closest) + ratio / 10)


def _parts(word: str) -> list[str]:
    return word.replace("_", "-").replace(" ", "-").split("-")
