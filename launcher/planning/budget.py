"""Compares candidates' required memory with the available memory."""

from __future__ import annotations

from ..core.choices import Precision
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.hardware import Hardware
from ..core.quantities import GIB
from ..core.settings import LEAST_MEMORY, Setting
from .estimates.estimate import Estimate, Ranks
from .estimates.training_states import Candidate

HOST_SHARE = 0.95
"""Share of host memory that workers may use; the system gets the rest."""
CONCERNED = tuple(setting for setting in LEAST_MEMORY if setting is not Setting.PRECISION)
"""Settings that affect memory; the precision doesn't change for it."""


def capacity(hardware: Hardware, ranks: Ranks) -> int:
    """Bytes that one rank may use; workers on a CPU share the host's memory."""
    if hardware.accelerator.memory:
        return hardware.accelerator.memory - hardware.in_use
    return int(HOST_SHARE * hardware.host_memory / ranks.on_host)


def over_budget(
    candidate: Candidate,
    estimate: Estimate,
    hardware: Hardware,
    ranks: Ranks,
    limit: int | None,
    *,
    at_least: bool = False,
) -> Constraint | None:
    """The constraint that a candidate violates if it doesn't fit into memory.

    The `limit` is the maximum that a rank was observed to get, in bytes. With `at_least` the lower
    bound counts (expected memory less the estimate's error) instead of the upper one.
    """
    available = capacity(hardware, ranks)
    usable = available if limit is None else min(limit, available)
    if (estimate.least if at_least else estimate.bound) > usable:
        needed = gib(estimate.peak.needed)
        return _constraint(
            candidate,
            f"needs {gib(estimate.bound)} GiB a rank at most ({needed} expected), "
            f"{gib(usable)} are usable",
        )
    host = int(HOST_SHARE * hardware.host_memory)
    if hardware.accelerator.memory and estimate.host > host:
        return _constraint(
            candidate,
            f"needs {gib(estimate.host)} GiB of host memory, {gib(host)} are usable",
        )
    return None


def _constraint(candidate: Candidate, summary: str) -> Constraint:
    terms = tuple(
        Term(setting, frozenset({candidate[setting]}))
        for setting in CONCERNED
        if setting in candidate
    )
    return Constraint(terms, Cause(CauseKind.MEMORY, "memory", summary))


def hardware_constraints(hardware: Hardware) -> tuple[Constraint, ...]:
    """Constraints for features the accelerator lacks, if its profile is known."""
    device = hardware.accelerator
    lacking = frozenset(Precision) - device.precisions
    if not lacking or not device.measured:
        return ()
    values = frozenset(str(precision.value) for precision in lacking)
    named = " or ".join(sorted(values))
    cause = Cause(CauseKind.HARDWARE, device.name, f"{device.name} doesn't compute in {named}")
    return (Constraint((Term(Setting.PRECISION, values),), cause),)


def gib(size: float) -> str:
    """Formats bytes in GiB."""
    value = size / GIB
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
