"""Which candidates fit: compares the memory that is needed with the memory available."""

from __future__ import annotations

from ..core.choices import Precision
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.hardware import Hardware
from ..core.settings import Setting
from ..core.units import GIB
from .estimates.estimate import Estimate
from .estimates.ranks import Ranks
from .estimates.training_states import Candidate

HOST_SHARE = 0.95
"""Share of the host's memory that the workers may use; the rest is the system's."""
CONCERNED = (
    Setting.ZERO_STAGE,
    Setting.OFFLOAD,
    Setting.RESHARD_AFTER_FORWARD,
    Setting.GRADIENT_CHECKPOINTING,
    Setting.MICRO_BATCH,
)
"""The settings that decide how much memory is needed."""


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
    """The constraint of a candidate that doesn't fit into memory; None if it fits.

    Args:
        candidate: its settings.
        estimate: its memory.
        hardware: that of every node.
        ranks: who shares it.
        limit: bytes that a rank was seen to get at most; None if nothing was seen.
        at_least: compare what it needs at the very least, what is expected less the error of the
            estimate, instead of the bound.
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
    """Constraints for an accelerator's missing abilities; unknown without a profile."""
    device = hardware.accelerator
    lacking = frozenset(Precision) - device.precisions
    if not lacking or not device.measured:
        return ()
    values = frozenset(str(precision.value) for precision in lacking)
    named = " or ".join(sorted(values))
    cause = Cause(CauseKind.HARDWARE, device.name, f"{device.name} doesn't compute in {named}")
    return (Constraint((Term(Setting.PRECISION, values),), cause),)


def gib(size: float) -> str:
    """Bytes in GiB, rounded for reading."""
    value = size / GIB
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
