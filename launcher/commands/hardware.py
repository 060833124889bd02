"""`safe-launch hardware`: the known accelerators, and the hardware of this host."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from ..core.errors import ExitCode
from ..core.hardware import Accelerator, Hardware
from ..core.plain_json import plain
from ..core.quantities import count_of
from ..machine import detect, profiles
from ..options.parser import Parser
from ..planning.budget import gib
from ..system import terminal
from ..system.terminal import Row
from .arguments import add_json

COLUMNS = ("name", "GiB", "taken", "types", "TFLOP/s", "GB/s", "link GB/s")


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the hardware found on this host, and the known profiles."""
    detected = detect.detect()
    if options.json:
        document = {"found": detected, "profiles": profiles.profiles(), "nodes": profiles.nodes()}
        terminal.show(json.dumps(document, default=plain, indent=1))
        return ExitCode.SUCCESS
    terminal.say(*terminal.table(hardware_rows(detected), indent=0))
    devices = [profiles.accelerator_of(profile) for profile in profiles.profiles()]
    terminal.show(known_table(devices, [node.name for node in profiles.nodes()]))
    return ExitCode.SUCCESS


def hardware_rows(hardware: Hardware) -> list[Row]:
    """Rows on the hardware that was found."""
    device = hardware.accelerator
    count = f"{hardware.accelerators} x " if hardware.accelerators else ""
    size = f", {gib(device.memory)} GiB each" if device.memory else ", no accelerator found"
    rows = [("found", f"{count}{device.name}{size}")]
    rows.append(
        ("host", f"{count_of(hardware.cores, 'core')}, {gib(hardware.host_memory)} GiB of memory")
    )
    rows += [("sets", f"{name}={value}") for name, value in device.environment.items()]
    rows += [("known", text) for text in device.restrictions]
    return rows + [("note", text) for text in hardware.notes]


def known_table(devices: Sequence[Accelerator], nodes: Sequence[str]) -> str:
    """A table of all profiles, except those for unknown devices, and the names of the nodes."""
    lines = [COLUMNS]
    for device in devices:
        if device.name != device.kind:
            types = " ".join(sorted(str(kind.value) for kind in device.precisions))
            cells = (gib(device.memory), gib(device.taken), types, f"{device.compute / 1e12:g}")
            lines.append(
                (device.name, *cells, f"{device.bandwidth / 1e9:g}", f"{device.link / 1e9:g}")
            )
    return "\n".join([*terminal.columns(lines), "", f"nodes: {', '.join(nodes)}"])
