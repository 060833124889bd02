"""Detects the host's hardware available to this job, without torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from mmap import PROT_READ, mmap
from pathlib import Path

from ..core.hardware import Accelerator, Hardware, common_device
from ..core.quantities import GIB, count_of
from . import host
from .probes import Device, amd, ascend, nvidia, visible
from .profiles import accelerator_of, in_use_note, matching, profile_named

DRIVER_MEMORY = {"npu": (2 * GIB, 0.035), "rocm": (GIB // 2, 0.002), "cuda": (GIB // 2, 0.01)}
"""Maximum memory of an idle device's driver, by kind: bytes, and a share of the total.

Observed: up to 2901 MiB of a 910B4's 32768, 3454 of a 910B2's 65536, 284 of a MI300X's 196592. NVML
counts the driver's reserved memory as used, 820 MiB of an A100's 81920.
"""
FRAMEWORKS_SHARE = {"npu": 0.9, "rocm": 0.97, "cuda": 0.97}
"""Minimum share of the vendor's total available to the framework: 29.5 GiB of a 910B4's 32, 14.6 of
a T4's 15."""
DEVICE_FILES = {
    "cuda": (r"nvidia\d+", "CUDA_VISIBLE_DEVICES"),
    "npu": (r"davinci\d+", "ASCEND_RT_VISIBLE_DEVICES"),
}
"""Device files, and the variable that hides some, if no vendor's tool responds."""
HCCL = "libhccl.so"
"""The first library that torch_npu links against (DT_NEEDED in its 2.6 wheel)."""
CACHE = Path("/etc/ld.so.cache")
SYSTEMS_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
TORCHS_MODULES = {"gpu": "cuda", "auto": "accelerator"}
"""torch modules for torchrun's device words, if named differently."""
IMPORTING = 120
"""Timeout in seconds for importing torch from a slow disk."""
COUNT = """\
import importlib, sys, torch
try:
    devices = importlib.import_module("torch." + sys.argv[1])
except ImportError:  # of a backend that is no part of torch
    devices = getattr(torch, sys.argv[1])
print("\\n", devices.device_count() if devices.is_available() else 0)
"""
PROBES: tuple[Callable[[Mapping[str, str]], tuple[Device, ...]], ...] = (*(nvidia, ascend, amd),)
"""For each vendor: the devices available to this job, or none without the vendor's tool."""


def detect(environment: Mapping[str, str] = os.environ, files: Path = Path("/dev")) -> Hardware:
    """This host's hardware available to the job."""
    problem = missing_libraries(environment)
    here = Hardware(
        accelerator=accelerator_of(profile_named("cpu")),
        accelerators=0,
        cores=host.cores(),
        host_memory=host.memory(),
        notes=() if problem is None else (problem,),
    )
    if probed := devices(environment):
        hardware = of_devices(here, probed)
        return replace(hardware, notes=hardware.notes + _visibility_notes(probed, environment))
    for kind, (pattern, variable) in DEVICE_FILES.items():
        names = [path.name for path in files.iterdir()] if files.is_dir() else []
        present = [name for name in names if re.fullmatch(pattern, name)]
        if count := _count(present, environment.get(variable)):
            device = replace(accelerator_of(profile_named(kind)), measured=False, sized=False)
            what = count_of(count, f"{kind} device")
            note = (
                f"{what}, but no tool of the vendor identifies them: planned for "
                f"{device.memory / GIB:.1f} GiB each, the smallest known, and nothing is changed "
                "because of that; --hardware names them"
            )
            return replace(here, accelerator=device, accelerators=count, notes=(*here.notes, note))
    return here


def devices(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices of the first vendor with any on this host."""
    return next(filter(None, (probe(environment) for probe in PROBES)), ())


def missing_libraries(environment: Mapping[str, str]) -> str | None:
    """A warning if torch_npu is installed without CANN's libraries; None otherwise.

    From 2.5 on, torch loads torch_npu on import (`_import_device_backends` in torch/__init__.py),
    so that fails too. The dynamic linker looks beside torch_npu's library, in LD_LIBRARY_PATH, in
    its cache and in the system's folders (ld.so(8)).
    """
    spec = PathFinder.find_spec("torch_npu")
    if spec is None or not spec.origin or environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return None
    beside = Path(spec.origin).parent / "lib"
    try:
        with (beside / "libtorch_npu.so").open("rb") as file:
            is_needed = mmap(file.fileno(), 0, prot=PROT_READ).find(f"\0{HCCL}\0".encode()) >= 0
        is_cached = f"{HCCL}\0".encode() in CACHE.read_bytes()
    except (OSError, ValueError):  # there is none, or it is empty
        return None
    listed = re.split("[:;]", environment.get("LD_LIBRARY_PATH", ""))
    folders = [beside, *map(Path, (*filter(None, listed), *SYSTEMS_FOLDERS))]
    if not is_needed or is_cached or any((folder / HCCL).exists() for folder in folders):
        return None
    return (
        f"torch_npu is installed, but {HCCL}, one of CANN's libraries, isn't found: importing it "
        "will fail, and from torch 2.5 on so will `import torch`. Before the launch `source "
        "/usr/local/Ascend/ascend-toolkit/set_env.sh`, or train on the CPU with `export "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0`"
    )


def counted_by_torch(word: str) -> int:
    """The number of devices for a word of torchrun's --nproc-per-node, by torch in another process.

    Queries torch only if it may have other devices than the probes: if it is built for XPU, or a
    package brings a backend (the entry points that `import torch` loads). `auto` needs torch 2.6 or
    newer.
    """
    if word == "cpu" or not word.isidentifier() or not _has_others():
        return 0
    command = [sys.executable, "-P", "-c", COUNT, TORCHS_MODULES.get(word, word)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=IMPORTING, check=True
        )
        return int(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0


def _has_others() -> bool:
    from importlib import metadata  # which few launches need

    try:
        is_for_xpu = "xpu" in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    return is_for_xpu or bool(metadata.entry_points(group="torch.backends"))


def unknown_devices(detected: Hardware, source: str, count: int = 0) -> Hardware:
    """This host with named devices that no tool finds.

    Args:
        detected: this host, without devices.
        source: the source of the name.
        count: number of devices; 0 if unknown.
    """
    note = f"{source}: such devices are unknown, so memory isn't estimated"
    device = accelerator_of(profile_named("unknown"))
    return replace(detected, accelerator=device, accelerators=count, notes=(*detected.notes, note))


def _count(present: Sequence[str], listed: str | None) -> int:
    """The number of devices available to the job; only vendors' tools have identifiers."""
    if listed is not None and listed.startswith(("GPU-", "MIG-")):
        return min(len(present), len(listed.split(",")))
    return len(visible(present, listed))


def _visibility_notes(present: Sequence[Device], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Notes on variables that may make the framework use other devices."""
    kind, names = present[0].kind, {device.name for device in present}
    listed = environment.get("ASCEND_RT_VISIBLE_DEVICES", "")
    if kind == "npu" and re.search(r"[^\d,]", listed):
        # hiascend.com, CANN, environment variables: what isn't a digit or a comma ends the list.
        return (f"ASCEND_RT_VISIBLE_DEVICES={listed}: CANN documents numbers and commas alone",)
    listed = environment.get("CUDA_VISIBLE_DEVICES", "")
    by_speed = environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    if kind == "cuda" and by_speed and len(names) > 1 and re.search(r"(^|,)\s*\d", listed):
        return ("CUDA numbers devices that differ by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID",)
    return ()


def of_devices(here: Hardware, present: Sequence[Device]) -> Hardware:
    """The host with its devices; if they differ, with the minimum of each fact."""
    facts = [_facts(device) for device in present]
    notes = [*here.notes, *dict.fromkeys(note for _, note in facts if note)]
    names = list(dict.fromkeys(device.name for device, _ in facts))
    if len(names) > 1:
        notes.append(f"the devices differ ({', '.join(names)}): planned for the least of each fact")
    in_use = max(map(_held_by_others, present))
    if in_use:
        notes.append(in_use_note(in_use))
    return replace(
        here,
        accelerator=common_device([device for device, _ in facts]),
        accelerators=len(present),
        in_use=in_use,
        notes=tuple(notes),
    )


def _facts(device: Device) -> tuple[Accelerator, str]:
    """A device's profile, or a conservative one with measured memory, and a note."""
    profile = matching(device.kind, device.name, device.total)
    if profile is not None:
        return accelerator_of(profile), ""
    measured = int(FRAMEWORKS_SHARE[device.kind] * device.total)
    generic = accelerator_of(profile_named(device.kind), memory=measured)
    text = f"there is no profile for {device.name!r}: its memory is measured"
    return replace(generic, name=device.name), f"{text}, the rest is a cautious guess"


def _held_by_others(device: Device) -> int:
    """Bytes in use beyond an idle device's driver."""
    fixed, share = DRIVER_MEMORY[device.kind]
    return max(0, device.used - fixed - int(share * device.total))
