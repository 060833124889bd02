"""How a value is known, and where it comes from."""

from __future__ import annotations

from enum import IntEnum


class Certainty(IntEnum):
    """How a value is known; docs/using/certainty.md says what a plan may do at which."""

    ASSUMED = 0
    """A framework's default, which the script may override."""
    DERIVED = 1
    """Follows from what the script imports."""
    STATED = 2
    """The user's flag, configuration file or option."""
    OBSERVED = 3
    """Seen in a running worker."""
    PROVEN = 4
    """Proven by a failure."""


class Origin(IntEnum):
    """Where a value comes from; of two statements on a name, the higher origin takes precedence."""

    DEFAULT = 0
    """The framework's default in the installed version, which the script may override."""
    SCRIPT = 1
    """Derived: it follows from what the script imports."""
    PRESET = 2
    """A named preset."""
    CONFIG = 3
    """A configuration file, or an environment variable for it."""
    FLAG = 4
    """A flag on the script's command line."""
    LEARNT = 5
    """Proven or observed by an earlier run of the same script."""
    OBSERVED = 6
    """Observed in a running worker."""
    LESSON = 7
    """Proven by the failure of an attempt."""

    @property
    def certainty(self) -> Certainty:
        """How what comes from there is known."""
        return CERTAINTIES[self]


CERTAINTIES = {
    Origin.DEFAULT: Certainty.ASSUMED,
    Origin.SCRIPT: Certainty.DERIVED,
    Origin.PRESET: Certainty.STATED,
    Origin.CONFIG: Certainty.STATED,
    Origin.FLAG: Certainty.STATED,
    Origin.LEARNT: Certainty.PROVEN,
    Origin.OBSERVED: Certainty.OBSERVED,
    Origin.LESSON: Certainty.PROVEN,
}
