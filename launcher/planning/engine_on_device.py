"""Determines the engine that a kind of device requires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core.choices import Engine, Framework
from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.settings import Fact, Setting
from ..core.workload import Known, Workload

WITHOUT_EFFECT = (
    "FSDP has no effect here: on a CPU accelerate trains with DDP, and every rank holds "
    "all (safe-launch explain fsdp-trains-ddp-on-cpu)"
)


def on_device(workload: Workload, hardware: Hardware) -> Workload:
    """The workload with the engine accelerate uses on the device.

    accelerate enables FSDP on several accelerators but not on CPUs (accelerate/state.py,
    `AcceleratorState.__init__`, 1.6 to 1.15).
    """
    stated = workload.known.get(Fact.ENGINE)
    by_accelerate = workload.framework is not Framework.NONE
    is_changed = by_accelerate and hardware.accelerator.kind == "cpu"
    if stated is None or workload.engine is not Engine.FSDP or not is_changed:
        return workload
    engine = Known(Engine.DDP.value, stated.origin, f"{stated.source}, on a CPU")
    without_fsdp = workload.without((Setting.RESHARD_AFTER_FORWARD, Setting.OFFLOAD))
    informed = without_fsdp.informed([(Fact.ENGINE, engine)])
    return replace(informed, notes=(*workload.notes, WITHOUT_EFFECT))


def check(wanted: Mapping[Setting, Known], hardware: Hardware) -> None:
    """Checks that the device supports the launcher's options.

    Raises:
        LaunchError: FSDP on a CPU.
    """
    reshard = wanted.get(Setting.RESHARD_AFTER_FORWARD)
    if reshard is not None and hardware.accelerator.kind == "cpu":
        problem = f"{reshard.source}: accelerate trains with FSDP on accelerators alone"
        raise LaunchError(problem, "on CPUs use --preset zero3, or DDP")
