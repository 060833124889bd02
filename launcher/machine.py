"""What the workers run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Hardware:
    """The accelerators and the host of one node.

    Attributes:
        accelerator: name of the profile, e.g. `cpu`.
        accelerators: how many of them this job may use.
        cores: processor cores that this job may use.
        host_memory: bytes of host memory.
        environment: variables that the workers need on this accelerator.
    """

    accelerator: str
    accelerators: int
    cores: int
    host_memory: int
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
