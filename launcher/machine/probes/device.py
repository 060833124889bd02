"""A device as reported by its vendor's tool, and the variables that hide devices."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Kind = TypeVar("Kind")
SECONDS = 10
"""Seconds that a vendor's tool may take; a hung driver must not hang the launcher."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes:
        kind: cuda, npu or rocm.
        name: as its vendor's tool prints it.
        total: bytes of memory that the tool reports.
        used: bytes of it that are in use, the driver's own included.
        uuid: its identifier; empty if the tool prints none.
    """

    kind: str
    name: str
    total: int
    used: int
    uuid: str = ""


def visible(devices: Sequence[Kind], text: str | None, uuids: Sequence[str] = ()) -> list[Kind]:
    """The devices that a `*_VISIBLE_DEVICES` variable makes visible.

    Like the drivers: indices, ranges of them (Ascend), or prefixes of identifiers, up to
    the first unknown item; an empty list hides all.
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


def said(command: Sequence[str]) -> str | None:
    """The output of a vendor's tool; None if it isn't installed, fails or hangs."""
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
    """The value of the first of these variables that is set."""
    return next((environment[name] for name in names if name in environment), None)
