"""The result of a function that refuses a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a request, and why, as a sentence to be printed."""

    sentence: str
