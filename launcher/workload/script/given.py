"""A script's arguments: the value of each flag, and its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.certainty import Origin
from ...core.settings import Value
from ...core.workload import Known

PARSERS = {"HfArgumentParser", "TrlParser"}
"""Scripts that use one of these take all arguments from the command line, or defaults."""

TRUE = ("yes", "true", "t", "y", "1")
FALSE = ("no", "false", "f", "n", "0")
"""The words that `string_to_bool` of transformers/hf_argparser.py reads as true and false."""


@dataclass(frozen=True, slots=True)
class Given:
    """The value of a flag or configuration key, and its source.

    Attributes:
        value: text from a command line, or a typed value from a file; None for a bare flag.
        origin: flag or configuration file, or the script's own source.
        source: the place in words.
        words: on a command line, everything up to the next flag.
    """

    value: Any
    origin: Origin
    source: str
    words: tuple[str, ...] = ()

    @property
    def says_no(self) -> bool:
        """Whether it is given in order to have nothing; a bare flag isn't."""
        return self.value is not None and str(self.value).lower() in (*FALSE, "none", "")

    def known(self, value: Value) -> Known:
        """A value that follows from it."""
        return Known(value, self.origin, self.source)


@dataclass(frozen=True, slots=True)
class Flags(Mapping[str, Given]):
    """The arguments by name; it records the lookups.

    Attributes:
        all: the arguments.
        asked: names that were looked up, given or not.
    """

    all: Mapping[str, Given] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Given:
        """The argument of that name."""
        self.asked.add(name)
        return self.all[name]

    def __iter__(self) -> Iterator[str]:
        """The names, without looking them up."""
        return iter(self.all)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.all)
