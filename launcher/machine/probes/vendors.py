"""Runs the probes of all vendors, without torch.

A probe is a function of the environment that returns the devices available to this job, or none
without the vendor's tool. To support another vendor, add a module here and its function to
`PROBES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import amd, ascend, nvidia
from .device import Device

PROBES: tuple[Callable[[Mapping[str, str]], tuple[Device, ...]], ...] = (
    *(nvidia.probe, ascend.probe, amd.probe),
)


def devices(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices of the first vendor with any on this host."""
    return next(filter(None, (probe(environment) for probe in PROBES)), ())
