"""Sends findings, and the reasons why checks are skipped."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from ...checks.finding import MOST, Check, Finding, is_on
from ...core.private_names import MissingNameError
from ...evidence.observations import Observations
from ...evidence.worker_messages import Found, Message, Skipped

_told: weakref.WeakKeyDictionary[Observations, set[tuple[object, ...]]]
_told = weakref.WeakKeyDictionary()


def makes(*checks: Check) -> bool:
    """Whether this worker runs any of the checks."""
    return any(is_on(check, os.environ) for check in checks)


def tell(observations: Observations, *findings: Finding | None) -> None:
    """Sends findings to the launcher, each once."""
    for finding in findings:
        if finding is not None and makes(finding.check):
            _once(observations, finding.identity, Found(finding))


def is_certain(observations: Observations, check: Check) -> bool:
    """Whether a check has a certain finding, which may explain other findings."""
    return any((check, True) == key[:2] for key in _told.get(observations, ()))


def skip(observations: Observations, check: Check, why: str) -> None:
    """Sends the reason to skip a check, once."""
    if makes(check):
        _once(observations, (check, why), Skipped(check, why))


def _once(observations: Observations, key: tuple[object, ...], message: Message) -> None:
    told = _told.setdefault(observations, set())
    if key not in told and len(told) < MOST:
        told.add(key)
        observations.send(message)


def looking(
    observations: Observations, check: Check, look: Callable[..., object], *given: Any
) -> None:
    """Runs a check; an exception skips it instead of ending the training."""
    try:
        look(*given)
    except MissingNameError as error:
        skip(observations, check, error.problem)
    except Exception as error:
        skip(observations, check, f"{type(error).__name__}: {str(error)[:200]}")
