"""The answer of a function that can't do what it was asked, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """It can't be done.

    Attributes:
        sentence: what and why, as it is printed.
    """

    sentence: str
