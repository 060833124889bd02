"""What is there on this host for this job, found without torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from . import host
from .machine import Accelerator, Hardware
from .probes import devices
from .probes.device import Device, visible
from .profiles import accelerator_of, matching, profile_named

GIB = 2**30
DRIVERS_OWN = {"npu": 5 * GIB, "rocm": GIB // 2, "cuda": GIB}
"""Bytes that an idle device's driver holds, by kind: about 2.8 GB of an NPU's 32, 4.2 of 64."""
DEVICE_FILES = {
    "cuda": (r"nvidia\d+", "CUDA_VISIBLE_DEVICES"),
    "npu": (r"davinci\d+", "ASCEND_RT_VISIBLE_DEVICES"),
}
"""Device files, and the variable that hides some of them, for where no vendor's tool answers."""


def detect(environment: Mapping[str, str] = os.environ, files: Path = Path("/dev")) -> Hardware:
    """This host, as far as this job may use it."""
    here = Hardware(
        accelerator=accelerator_of(profile_named("cpu")),
        accelerators=0,
        cores=host.cores(),
        host_memory=host.memory(),
    )
    found = devices(environment)
    if found:
        return of_devices(here, found)
    for kind, (pattern, variable) in DEVICE_FILES.items():
        names = [path.name for path in files.iterdir()] if files.is_dir() else []
        there = [name for name in names if re.fullmatch(pattern, name)]
        if count := len(visible(there, environment.get(variable))):
            note = (
                f"{count} {kind} devices, but no tool of the vendor's tells which: memory unknown"
            )
            device = accelerator_of(profile_named(kind), memory=0)
            return replace(here, accelerator=device, accelerators=count, notes=(note,))
    return here


def of_devices(here: Hardware, found: Sequence[Device]) -> Hardware:
    """The host with its devices; where they differ, with the least of each fact."""
    facts = [_facts(device) for device in found]
    notes = list(dict.fromkeys(note for _, note in facts if note))
    names = list(dict.fromkeys(device.name for device, _ in facts))
    if len(names) > 1:
        notes.append(f"the devices differ ({', '.join(names)}): planned for the least of each fact")
    in_use = max(_held_by_others(device) for device in found)
    if in_use:
        notes.append(f"other processes hold {in_use / GIB:.1f} GiB of a device already")
    return replace(
        here,
        accelerator=least([device for device, _ in facts]),
        accelerators=len(found),
        in_use=in_use,
        notes=tuple(notes),
    )


def _facts(device: Device) -> tuple[Accelerator, str]:
    """A device's profile, or what was measured with a conservative one."""
    profile = matching(device.kind, device.name, device.total)
    if profile is not None:
        return accelerator_of(profile), ""
    generic = accelerator_of(profile_named(device.kind), memory=int(0.97 * device.total))
    text = f"no profile names {device.name!r}: its memory is measured, all else is a low guess"
    return replace(generic, name=device.name), text


def _held_by_others(device: Device) -> int:
    """Bytes beyond what an idle device's driver holds."""
    held = device.used - DRIVERS_OWN[device.kind]
    return held if held > 0 else 0


def least(every: Sequence[Accelerator]) -> Accelerator:
    """One device that stands for all: the least memory and rates, what all can do."""
    return replace(
        min(every, key=lambda one: one.memory),
        taken=max(one.taken for one in every),
        precisions=frozenset.intersection(*(one.precisions for one in every)),
        measured=all(one.measured for one in every),
        compute=min(one.compute for one in every),
        bandwidth=min(one.bandwidth for one in every),
        link=min(one.link for one in every),
        node_link=min(one.node_link for one in every),
        host_link=min(one.host_link for one in every),
    )
