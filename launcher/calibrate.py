"""What an attempt that ran out of memory teaches about its need."""

from __future__ import annotations

from .allocation import allocation_of
from .attempt import Attempt
from .budget import capacity
from .diagnose import tried_settings
from .failure import FailureRecord
from .machine import Hardware
from .workload import Measured, Workload


def measured_of(
    attempt: Attempt, record: FailureRecord, workload: Workload, hardware: Hardware
) -> Measured:
    """The numbers of the allocator, or of the host, in the terms of the memory model.

    Args:
        attempt: what failed.
        record: of the rank that ran out of memory.
        workload: what is known now, the attempt's sightings included.
        hardware: what it ran on.

    On an accelerator the context is what the device holds beside the framework's allocator; on a
    CPU it is the process as it was before the model.
    """
    world = attempt.plan.request.nproc
    there = capacity(hardware, world)
    seen = allocation_of(record)
    settings = tried_settings(attempt, workload)
    if seen is None:
        return Measured(settings, there, None, there)
    limit = min(one for one in (seen.capacity, there) if one is not None)
    held = seen.process if seen.process is not None else seen.allocated
    needed = limit if held is None else held + (seen.asked or 0)
    context = record.memory.get("before_model")
    if context is None and None not in (seen.capacity, seen.free, seen.reserved):
        context = max(int(seen.capacity or 0) - int(seen.free or 0) - int(seen.reserved or 0), 0)
    return Measured(settings, needed, context, limit)
