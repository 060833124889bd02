"""One option of a script's own parser, and the values that it makes of what is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core.certainty import Origin
from .given import FALSE, TRUE, Given
from .known_values import Unknown


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a script's own parser.

    Attributes:
        names: its spellings without dashes, the one under which scripts find its value first.
        kind: `bool`, `int`, `float`, `list` or `str`.
        default: its value where it isn't given; `Unknown` where that isn't known.
        source: where it is declared.
        origin: SCRIPT, or DEFAULT where a library declares it.
    """

    names: tuple[str, ...]
    kind: str
    default: Any
    source: str
    origin: Origin = Origin.SCRIPT

    def value(self, given: Given) -> Any:
        """What the parser makes of what is given for the option."""
        if self.kind == "list":
            return given.value if isinstance(given.value, list) else _list(given.words)
        return value_of(given, self.kind)


def _list(words: Sequence[str]) -> list[str]:
    """The items of a list: several words, or one in brackets, as Fire takes it."""
    if len(words) == 1 and words[0].startswith("[") and words[0].endswith("]"):
        return [item.strip(" '\"") for item in words[0][1:-1].split(",")]
    return list(words)


def value_of(given: Given, kind: str = "") -> Any:
    """A value from a command line or a file as a Python value of a kind; as it looks without one.

    `Unknown` where the parser would refuse it.
    """
    if not isinstance(given.value, str | None):
        return given.value
    word = "true" if given.value is None else given.value.strip().lower()
    if kind in ("bool", "") and word in (("true", "false") if kind == "" else TRUE + FALSE):
        return word in TRUE
    if kind == "bool":
        return Unknown()
    try:
        if kind == "int" or (kind == "" and word.isdecimal()):
            return int(word)
        return float(word) if kind == "float" else given.value
    except ValueError:
        return Unknown()
