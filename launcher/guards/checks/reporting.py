"""Reports findings, and the reasons why checks are skipped, to the launcher."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...checks import finding as findings
from ...checks.finding import MOST, Check, Finding
from ...core.private_names import MissingNameError
from ...evidence.observations import observations
from ...evidence.worker_messages import Found, Message, Skipped
from ..callers import user_place

_sent: set[tuple[object, ...]] = set()
"""Identities of findings, and skipped checks with their reasons."""


def is_on(*checks: Check) -> bool:
    """Whether this worker runs any of the checks."""
    return any(findings.is_on(check, os.environ) for check in checks)


def report(*findings: Finding | None, where: str = "", step: int | None = None) -> None:
    """Sends findings to the launcher, each once.

    Args:
        findings: the findings.
        where: the user's line that they are about, unless they name another.
        step: the optimizer step of the observation, unless they name another.
    """
    for finding in findings:
        if finding is not None and is_on(finding.check):
            known = step if finding.step is None else finding.step
            placed = replace(finding, where=finding.where or where, step=known)
            _once(placed.identity, Found(placed))


def report_here(*findings: Finding | None, step: int | None = None) -> None:
    """Sends findings that by default are about the user's line that is running, each once."""
    if any(findings):
        report(*findings, where=user_place(), step=step)


def is_certain(check: Check) -> bool:
    """Whether a check has a certain finding, which may explain other findings."""
    return any((check, True) == key[:2] for key in _sent)


def is_found(check: Check) -> bool:
    """Whether a check has any finding."""
    return any(key[:2] in ((check, True), (check, False)) for key in _sent)


def skip(check: Check, why: str) -> None:
    """Sends the reason to skip a check, once."""
    if is_on(check):
        _once((check, why), Skipped(check, why))


def _once(key: tuple[object, ...], message: Message) -> None:
    if key not in _sent and len(_sent) < MOST:
        _sent.add(key)
        observations.send(message)


def safely(check: Check, look: Callable[..., object], *arguments: Any) -> None:
    """Runs a check; an exception skips it instead of ending the training."""
    try:
        look(*arguments)
    except MissingNameError as error:
        skip(check, error.problem)
    except Exception as error:
        skip(check, f"{type(error).__name__}: {str(error)[:200]}")
