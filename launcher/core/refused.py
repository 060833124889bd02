"""The result of a function that can't do what was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a request, and why, as a sentence to be printed."""

    sentence: str
