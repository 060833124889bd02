"""Clouds' virtual machines with accelerators, by name: `hardware/instances/*.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .profiles import raw, shipped

PREFIX = re.compile(r"^(standard_|ml\.)", re.IGNORECASE)
"""Prefixes of Azure's and SageMaker's instance names."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A virtual machine."""

    name: str
    accelerator: str
    accelerators: int
    cores: int
    host_memory_gib: float


def every() -> Iterator[Instance]:
    """All known instances."""
    for path in shipped("instances").values():
        for name, facts in raw(path)["instances"].items():
            yield Instance(name, *facts)


def named(name: str) -> Instance | None:
    """An instance by name in any spelling, if known."""
    wanted = PREFIX.sub("", name.strip()).lower()
    return next((instance for instance in every() if instance.name.lower() == wanted), None)
