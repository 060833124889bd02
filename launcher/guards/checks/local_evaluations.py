"""Detects decisions by an evaluation of one rank's share: what to save, and the rate.

An evaluation counts if a divided loader has given all of its batches, and the script has called no
collective since it began.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from itertools import starmap
from types import ModuleType
from typing import Any

from ...checks import sampling
from ...checks.finding import Check
from ...evidence.observations import observations
from .collectives import collectives
from .evaluations import Phase, Wait
from .reporting import is_on, report_here, safely
from .samplers import is_divided
from .user_source import conditions

HOOKED = ("torch.serialization",)
BEST = re.compile(r"best|lowest|highest", re.IGNORECASE)
"""Parts of names for the best value so far."""
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


class LocalEvaluations:
    """The last evaluation of this rank's share.

    Attributes:
        is_open: whether to look at further decisions.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._is_whole = False
        self._count = -1  # collectives when it began; -1: none has begun since the last training

    def begun(self, wait: Wait, loader: Any, now: Phase) -> None:
        """Notes an evaluation that begins; a training ends the last one."""
        self._is_whole, self._count = False, -1
        is_evaluation = now is Phase.EVALUATION and self.is_open
        if is_evaluation and observations.steps_of_all() and is_divided(loader):
            self._count = collectives.count
            wait(len(loader), self.drawn)

    def drawn(self) -> None:
        """Notes the end of an evaluation."""
        self._is_whole = True

    @property
    def is_alone(self) -> bool:
        """Whether one has ended, and the ranks have exchanged nothing since it began."""
        return self.is_open and self._is_whole and self._count == collectives.count

    def decide(self, what: str) -> None:
        """Reports a decision by it."""
        if what == sampling.SAVES and not any(starmap(_is_of_best, conditions())):
            return
        self.is_open = False
        report_here(sampling.OF_ONE_SHARE.found(observations.steps_of_all() or 0, what=what))


local_evaluations = LocalEvaluations()


def install(module: ModuleType) -> None:
    """Wraps the function that saves what is best."""
    module.save = _saving(module.save)  # type: ignore[attr-defined]


def _saving(function: Any) -> Any:
    @functools.wraps(function)
    def save(*args: Any, **kwargs: Any) -> Any:
        decide(sampling.SAVES)
        return function(*args, **kwargs)

    return save


def decide(what: str) -> None:
    """Looks at a decision of the script's."""
    if local_evaluations.is_alone and is_on(Check.DATA):
        safely(Check.DATA, local_evaluations.decide, what)


def _is_of_best(test: ast.expr, values: Mapping[str, Any]) -> bool:
    """Whether a condition compares with the best value so far, or is its result."""
    compares = any(
        isinstance(node, ast.Compare) and isinstance(node.ops[0], ORDERS) for node in ast.walk(test)
    )
    return any(
        value is True or (compares and (isinstance(value, float) or hasattr(value, "dtype")))
        for name, value in _named(test, values)
        if BEST.search(name)
    )


def _named(test: ast.expr, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The names in a condition, with the variables' values; None for what would have to be run."""
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and node.id in values:
            yield node.id, values[node.id]
        elif isinstance(node, ast.Attribute):
            owner = values.get(node.value.id) if isinstance(node.value, ast.Name) else None
            yield node.attr, getattr(owner, "__dict__", {}).get(node.attr)
