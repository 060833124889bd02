"""The certainty and the origin of a value."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class Certainty(IntEnum):
    """The certainty of a value; docs/using/certainty.md lists what a plan may do at each level."""

    ASSUMED = 0
    """A framework's default, which the script may override."""
    DERIVED = 1
    """Follows from the script's imports."""
    STATED = 2
    """The user's flag, configuration file or option."""
    OBSERVED = 3
    """Seen in a running worker."""
    PROVEN = 4
    """Proven by a failure."""


class Origin(IntEnum):
    """The origin of a value; of two statements on a name, the higher origin takes precedence.

    Attributes:
        certainty: how values from there are known.
    """

    certainty: Certainty

    def __new__(cls, rank: int, certainty: Certainty) -> Self:
        """A row `NAME = rank, certainty`."""
        row = int.__new__(cls, rank)
        row._value_, row.certainty = rank, certainty
        return row

    DEFAULT = 0, Certainty.ASSUMED
    """The framework's default in the installed version, which the script may override."""
    SCRIPT = 1, Certainty.DERIVED
    """Derived from the script's imports."""
    PRESET = 2, Certainty.STATED
    """A named preset."""
    CONFIG = 3, Certainty.STATED
    """A configuration file, or an environment variable for it."""
    FLAG = 4, Certainty.STATED
    """A flag on the script's command line."""
    LEARNT = 5, Certainty.PROVEN
    """Proven or observed by an earlier run of the same script."""
    OBSERVED = 6, Certainty.OBSERVED
    """Observed in a running worker."""
    LESSON = 7, Certainty.PROVEN
    """Proven by the failure of an attempt."""
