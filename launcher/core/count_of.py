"""Counts, in words that agree with the number."""

from __future__ import annotations


def count_of(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun, as in `1 run`, `2 processes` or `12,480 more places`.

    The singular may have words around the noun, as in `node is left`; the plural is by default the
    singular with the ending of its last word.
    """
    return f"{number:,} {noun_of(number, singular, plural)}"


def noun_of(number: int, singular: str, plural: str = "") -> str:
    """The noun alone, for things that are then named, as in `ranks 0, 1`."""
    return singular if number == 1 else plural or plural_of(singular)


def plural_of(noun: str) -> str:
    """The plural of a noun that follows the rule."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
