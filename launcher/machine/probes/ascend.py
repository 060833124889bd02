"""Huawei's NPUs, from the table that `npu-smi info` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...core.units import MIB
from .device import Device, said, visible

PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


def probe(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The NPUs that torch_npu would see; a 910C counts as two.

    The variable counts devices in the order of the table, not by the numbers in it.
    """
    text = said(("npu-smi", "info"))
    if text is None:
        return ()
    return tuple(visible(parsed(text), environment.get("ASCEND_RT_VISIBLE_DEVICES")))


def parsed(text: str) -> list[Device]:
    """The chips in a table of `npu-smi info`, of any version and width.

    Each chip has two lines of three cells: number and name first, then the chip's number, sometimes
    with a physical id, its bus and its use. The last pair of numbers there is the memory in MiB:
    that of the HBM, where there is any; the pair before it is the host's part of a 910A and 0 / 0
    on newer chips. Versions before 21 print no pair in the first line. Processes have more cells.
    """
    devices = []
    name = ""
    for line in text.splitlines():
        cells = line.strip().strip("|").split("|")
        words = cells[0].split()
        if len(cells) != 3 or not words or not words[0].isdecimal():
            continue
        if not all(word.isdecimal() for word in words):
            name = " ".join(words[1:])
        elif name and (pairs := PAIR.findall(cells[2])):
            used, total = pairs[-1]
            devices.append(Device("npu", name, int(total) * MIB, int(used) * MIB))
            name = ""
    return devices
