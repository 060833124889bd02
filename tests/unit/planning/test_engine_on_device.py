"""The engine that trains on CPUs if FSDP is requested."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safe_launch.core.choices import Framework
from safe_launch.core.errors import LaunchError
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Origin
from safe_launch.planning.engine_on_device import check, on_device
from safe_launch.planning.named_presets import wanted
from support.worlds import HARDWARE, world

SHARDED: dict[Name, Value] = {
    Fact.ENGINE: "fsdp",
    Setting.RESHARD_AFTER_FORWARD: True,
    Setting.OFFLOAD: "none",
}
ON_NPU = replace(HARDWARE, accelerator=replace(HARDWARE.accelerator, kind="npu", memory=2**36))


def test_accelerate_takes_ddp_on_a_cpu() -> None:
    """DDP is as certain as the request was; FSDP's settings are dropped."""
    found = on_device(world(SHARDED), HARDWARE)
    assert found.known.keys() == {Fact.ENGINE}
    assert found.known[Fact.ENGINE].value == "ddp"
    assert found.known[Fact.ENGINE].origin is Origin.FLAG
    assert "fsdp-trains-ddp-on-cpu" in found.notes[0]


@pytest.mark.parametrize(
    ("workload", "hardware"),
    [
        (world(SHARDED), ON_NPU),
        (world(SHARDED, Framework.NONE), HARDWARE),
        (world({Fact.ENGINE: "deepspeed"}), HARDWARE),
        (world({}), HARDWARE),
    ],
    ids=["accelerator", "own loop", "deepspeed", "unknown"],
)
def test_all_else_stays(workload: object, hardware: object) -> None:
    """A plain loop shards on CPUs as well."""
    assert on_device(workload, hardware) is workload  # type: ignore[arg-type]


def test_a_preset_that_would_have_no_effect() -> None:
    """It is refused with alternatives."""
    with pytest.raises(LaunchError, match="on accelerators alone") as refused:
        check(wanted("fsdp2", ()), HARDWARE)
    assert "zero3" in refused.value.hint
    check(wanted("fsdp2", ()), ON_NPU)
    check(wanted("zero2", ()), HARDWARE)
