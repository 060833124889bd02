"""Measures the memory of attempts that ran out of memory or trained."""

from __future__ import annotations

from ..core.hardware import Hardware
from ..core.workload import Measured, Workload
from ..evidence.failure_record import FailureRecord
from ..planning.budget import capacity
from ..planning.estimates.estimate import ranks_of
from .allocator_message import allocation_of
from .attempt import Attempt, Succeeded
from .observed import tried_settings


def measured_of(
    attempt: Attempt, record: FailureRecord, workload: Workload, hardware: Hardware
) -> Measured:
    """Converts the allocator's or the host's numbers to terms of the memory model.

    The context is the device's memory outside the framework's allocator, or on a CPU the process's
    memory before the model.
    """
    there = capacity(hardware, ranks_of(attempt.plan.request, hardware))
    seen = allocation_of(record)
    settings = tried_settings(attempt, workload)
    limit = there if seen.capacity is None else min(seen.capacity, there)
    held = seen.allocated if seen.process is None else seen.process
    needed = limit if held is None else held + (seen.requested or 0)
    context = record.memory.get("before_model") if seen.process is not None else None
    if seen.capacity is not None and seen.free is not None and seen.reserved is not None:
        context = max(seen.capacity - seen.free - seen.reserved, 0)
    return Measured(settings, needed, context, limit)


def trained_of(outcome: Succeeded, workload: Workload, hardware: Hardware) -> Measured | None:
    """Memory of the rank with the most; None if not measured."""
    attempt = outcome.attempt
    most = max(outcome.seen.rows, key=lambda row: row.peak, default=None)
    if most is None or not most.peak:
        return None
    there = capacity(hardware, ranks_of(attempt.plan.request, hardware))
    # Other processes may have used device memory too: the training still fitted.
    return Measured(
        tried_settings(attempt, workload), min(most.peak, there), min(most.context, there), there
    )
