"""A script's arguments, with the value and place of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.settings import Value
from ..core.workload import Known, Origin

PARSERS = {"HfArgumentParser", "TrlParser"}
"""Parsers that take all arguments from the command line, or their defaults."""

TRUE = ("yes", "true", "t", "y", "1")
FALSE = ("no", "false", "f", "n", "0")
"""True and false values of `string_to_bool` (transformers/hf_argparser.py)."""


@dataclass(frozen=True, slots=True)
class Argument:
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
    def is_negative(self) -> bool:
        """Whether the value means off or none; a bare flag doesn't."""
        return self.value is not None and str(self.value).lower() in (*FALSE, "none", "")

    def known(self, value: Value) -> Known:
        """A value derived from this argument."""
        return Known(value, self.origin, self.source)


@dataclass(frozen=True, slots=True)
class Flags(Mapping[str, Argument]):
    """Arguments by name, with a record of lookups.

    Attributes:
        all: the arguments.
        looked_up: names that were looked up, present or not.
    """

    all: Mapping[str, Argument] = field(default_factory=dict)
    looked_up: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Argument:
        """The argument of that name."""
        self.looked_up.add(name)
        return self.all[name]

    def __iter__(self) -> Iterator[str]:
        """The names, without looking them up."""
        return iter(self.all)

    def __len__(self) -> int:
        """The number of arguments."""
        return len(self.all)
