"""The machine of a check: devices, packages, and torch's view of them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from safe_launch.machine.detect import detect, devices
from safe_launch.machine.profiles import profiles

PACKAGES = (
    *("torch", "torch_npu", "deepspeed", "transformers", "accelerate", "peft", "pytest"),
    *("nvidia-ml-py", "safe-launch"),
)
SEES = """\
import json, sys, torch
device = torch.get_device_module(sys.argv[1])
seen = {"devices": device.device_count()}
if seen["devices"]:
    seen["name"] = device.get_device_name(0)
    seen["memory"] = device.get_device_properties(0).total_memory
if sys.argv[1] == "cuda" and seen["devices"]:
    seen["cuda"] = torch.version.cuda
    seen["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
print("RESULT " + json.dumps(seen))
"""


@dataclass(frozen=True)
class Machine:
    """A host with devices.

    Attributes:
        kind: of the devices, in torch's terms; empty if there are none.
        name: from their vendor's tool.
        profile: the name of their profile.
        count: the number of devices.
        memory: bytes of one, from the vendor's tool.
        host: cores and system, in words.
        packages: versions.
        seen: torch's view of them; `error` if it fails.
    """

    kind: str
    name: str
    profile: str
    count: int
    memory: int
    host: str
    packages: Mapping[str, str]
    seen: Mapping[str, Any]

    def missing(self, needs: Sequence[str]) -> str:
        """Why a part that needs these packages can't run; empty if it can."""
        absent = [name for name in needs if name not in self.packages]
        if absent:
            return f"not installed: {', '.join(absent)}"
        if "torch" in needs and not self.seen.get("devices"):
            return f"torch sees no device: {self.seen.get('error', 'it counts none')}"
        return ""


def found() -> Machine:
    """This machine; torch runs in a separate process."""
    hardware, here = detect(os.environ), devices(os.environ)
    kind = here[0].kind if here else ""
    known = {profile.name for profile in profiles()}
    named = hardware.accelerator.name
    return Machine(
        kind=kind,
        name=here[0].name if here else "",
        profile=named if named in known else kind,
        count=len(here),
        memory=here[0].total if here else 0,
        host=f"{hardware.cores} cores, {platform.system()} {platform.release()}, Python "
        f"{platform.python_version()}",
        packages=installed(),
        seen=sees(kind) if here else {},
    )


def installed() -> dict[str, str]:
    """The installed versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def sees(kind: str) -> dict[str, Any]:
    """Torch's view of the devices."""
    command = [sys.executable, "-c", SEES, kind]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "it doesn't answer within a minute"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            seen: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return seen
    return {"error": done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"}
