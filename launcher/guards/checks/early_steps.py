"""Calls other checks before the first steps of each optimizer, and once copies have arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...checks.finding import Check
from .copies import Copy
from .reporting import is_on, safely

Look = Callable[[Any, int], None]
"""Callback for an optimizer and the number of its next step, from 1."""

_looks: dict[Look, Check] = {}
_waiting: list[tuple[Check, tuple[Copy, ...], Callable[[], object]]] = []
"""What waits for copies."""


def looking(check: Check, look: Look) -> None:
    """Registers a check before steps 1 to 10, then the 100th, the 1,000th and every 1,000th."""
    _looks[look] = check


def before(optimizer: Any, step: int) -> None:
    """Runs the checks before an optimizer's step."""
    for look, check in _looks.items():
        if is_on(check):
            safely(check, look, optimizer, step)
    waiting, _waiting[:] = [*_waiting], []
    for check, copies, judge in waiting:
        safely(check, later, check, copies, judge)


def later(check: Check, copies: Iterable[Copy], judge: Callable[[], object]) -> None:
    """Runs a check now if its copies are there, otherwise before one of the steps of `looking`."""
    held = tuple(copies)
    if all(copy.is_there for copy in held):
        safely(check, judge)
    else:
        _waiting.append((check, held, judge))
