"""Runs the probes of all vendors, without torch.

A probe is a module with `probe(environment) -> tuple[Device, ...]`: the devices available to this
job, or none without the vendor's tool. To support another vendor, add a module here and to
`PROBES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from . import amd, ascend, nvidia
from .device import Device


class Probe(Protocol):
    """The interface of the modules in `PROBES`."""

    def probe(self, environment: Mapping[str, str]) -> tuple[Device, ...]:
        """The devices that this job may use."""


PROBES: tuple[Probe, ...] = (nvidia, ascend, amd)


def devices(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices of the first vendor with any on this host."""
    for probe in PROBES:
        found = probe.probe(environment)
        if found:
            return found
    return ()
