"""Reads what ms-swift names in a way of its own: its DeepSpeed configurations.

Names of 2.x (`default-zero2`), 3.x and 4.x (`zero2`, `zero2_offload`): swift/llm/ds_config in 3.x,
swift/config in 4.x.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..settings import Engine, Fact, Offload, Setting
from ..workload import Known, Statement
from .script import Script

CONFIGURATIONS = {
    "zero0": (0, Offload.NONE),
    "zero1": (1, Offload.NONE),
    "zero2": (2, Offload.NONE),
    "zero3": (3, Offload.NONE),
    "zero2_offload": (2, Offload.OPTIMIZER),
    "zero3_offload": (3, Offload.OPTIMIZER_AND_PARAMETERS),
    "default-zero2": (2, Offload.NONE),
    "default-zero3": (3, Offload.NONE),
    "zero2-offload": (2, Offload.OPTIMIZER),
    "zero3-offload": (3, Offload.OPTIMIZER_AND_PARAMETERS),
}
"""What the configurations that it ships say of stage and offload."""


def read(script: Script) -> Iterator[Statement]:
    """Stage and offload of a configuration that is named rather than given."""
    named = script.text("deepspeed")
    if "swift" not in script.names or named is None or named.value not in CONFIGURATIONS:
        return
    stage, offload = CONFIGURATIONS[str(named.value)]
    source = f"{named.source} {named.value}"
    for name, value in (
        (Fact.ENGINE, Engine.DEEPSPEED.value),
        (Setting.ZERO_STAGE, stage),
        (Setting.OFFLOAD, offload.value),
        (Fact.AUTO_BUCKETS, True),
        (Fact.OVERLAP_COMM, False),
    ):
        yield name, Known(value, named.origin, source)
