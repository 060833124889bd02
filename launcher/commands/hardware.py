"""`safe-launch hardware`: the known accelerators, and what was found on this host."""

from __future__ import annotations

import argparse
import json

from ..core.errors import ExitCode
from ..core.plain_json import plain
from ..machine import detect, profiles
from ..options.parser import Parser
from ..report import hardware_table
from ..system import terminal
from .arguments import add_json


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the hardware found on this host, and the known profiles."""
    found = detect.detect()
    if options.json:
        document = {"found": found, "profiles": profiles.profiles(), "nodes": profiles.nodes()}
        terminal.show(json.dumps(document, default=plain, indent=1))
        return ExitCode.SUCCESS
    terminal.say(*terminal.table(hardware_table.found_rows(found), indent=0))
    devices = [profiles.accelerator_of(profile) for profile in profiles.profiles()]
    terminal.show(hardware_table.known_table(devices, [node.name for node in profiles.nodes()]))
    return ExitCode.SUCCESS
