"""The result of a function that can't do what was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a request.

    Attributes:
        sentence: what was refused and why, as printed.
    """

    sentence: str
