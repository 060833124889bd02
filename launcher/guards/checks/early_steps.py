"""Calls other checks before the first steps of each optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...checks.finding import Check
from .reporting import is_on, safely

Look = Callable[[Any, int], None]
"""Callback for an optimizer and the number of its next step, from 1."""

_looks: dict[Look, Check] = {}


def looking(check: Check, look: Look) -> None:
    """Registers a check before steps 1 to 10, then the 100th, the 1,000th and every 1,000th."""
    _looks[look] = check


def before(optimizer: Any, step: int) -> None:
    """Runs the checks before an optimizer's step."""
    for look, check in _looks.items():
        if is_on(check):
            safely(check, look, optimizer, step)
