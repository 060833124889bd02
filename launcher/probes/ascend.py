"""Huawei's NPUs, from the table that `npu-smi info` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .device import Device, said, visible

MIB = 2**20
FIRST = re.compile(r"^\|\s*\d+\s+(?P<name>\S+)\s*\|\s*\S+\s*\|\s*\S+\s+\S+\s+\d+\s*/\s*\d+\s*\|")
"""The upper line of a chip: number and name of the NPU, health, power, temperature, huge pages."""
SECOND = re.compile(
    r"^\|\s*\d+(\s+\d+)?\s*\|\s*[0-9A-Za-z]+:[0-9A-Za-z]+:[^|]+\|(?P<usage>[^|]+)\|"
)
"""The lower one: chip, sometimes a physical id, bus, use of the cores and of the memories."""
PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


def probe(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The NPUs that torch_npu would show; a 910C counts as two."""
    text = said(("npu-smi", "info"))
    if text is None:
        return ()
    return tuple(visible(parsed(text), environment.get("ASCEND_RT_VISIBLE_DEVICES")))


def parsed(text: str) -> list[Device]:
    """The chips in a table of `npu-smi info`, whatever its width.

    Each chip has two lines. The last pair of numbers of the lower one is the memory in MiB: that of
    the HBM, where the first pair (0 / 0 on newer chips) is another.
    """
    devices = []
    name = ""
    for line in text.splitlines():
        if upper := FIRST.match(line):
            name = upper["name"]
        elif name and (lower := SECOND.match(line)):
            pairs = PAIR.findall(lower["usage"])
            if pairs:
                used, total = pairs[-1]
                devices.append(Device("npu", name, int(total) * MIB, int(used) * MIB))
            name = ""
    return devices
