"""A device from its vendor's tool, and the variables that hide devices."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Kind = TypeVar("Kind")
SECONDS = 10
"""Timeout in seconds for a vendor's tool, as a driver may hang."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device.

    Attributes:
        kind: cuda, npu or rocm.
        name: its name in the vendor's tool.
        total: bytes of memory in the tool.
        used: bytes in use, including the driver's.
        uuid: its identifier; empty if unknown.
    """

    kind: str
    name: str
    total: int
    used: int
    uuid: str = ""


def visible(devices: Sequence[Kind], text: str | None, uuids: Sequence[str] = ()) -> list[Kind]:
    """The devices selected by a `*_VISIBLE_DEVICES` variable.

    Like drivers, accepts indices, ranges (Ascend), or prefixes of identifiers, up to the first
    unknown item; an empty list hides all.
    """
    if text is None:
        return list(devices)
    chosen: list[Kind] = []
    for part in (item.strip() for item in text.split(",")):
        first, dash, last = part.partition("-")
        if part.isdecimal() and int(part) < len(devices):
            chosen.append(devices[int(part)])
        elif dash and first.isdecimal() and last.isdecimal() and int(last) < len(devices):
            chosen += devices[int(first) : int(last) + 1]
        else:
            named = [
                device
                for device, uuid in zip(devices, uuids, strict=False)
                if uuid.startswith(part)
            ]
            if not part or len(named) != 1:
                break
            chosen += named
    return chosen


def output_of(command: Sequence[str]) -> str | None:
    """Runs a vendor's tool and returns its output; None if missing, failing or hanging."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def first_of(environment: Mapping[str, str], *names: str) -> str | None:
    """The value of the first set variable."""
    return next((environment[name] for name in names if name in environment), None)
