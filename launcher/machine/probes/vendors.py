"""The probes: what each vendor's own tool says of the devices on this host, without torch.

A probe is a module with `probe(environment) -> tuple[Device, ...]`: the devices that this job may
use, none where the vendor's tool isn't there. To teach safe-launch another vendor, add a module
here and to `PROBES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from . import amd, ascend, nvidia
from .device import Device


class Probe(Protocol):
    """What every module in `PROBES` provides."""

    def probe(self, environment: Mapping[str, str]) -> tuple[Device, ...]:
        """The devices that this job may use."""


PROBES: tuple[Probe, ...] = (nvidia, ascend, amd)


def devices(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices of the first vendor that has any here."""
    for probe in PROBES:
        found = probe.probe(environment)
        if found:
            return found
    return ()
