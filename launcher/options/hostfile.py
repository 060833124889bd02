"""Parses a hostfile and filters its hosts and devices.

The syntax is DeepSpeed's (deepspeed/launcher/runner.py): `name slots=N`, a line for each host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import LaunchError
from ..core.quantities import count_of, noun_of

_INDEX = re.compile(r"\s*\d{1,9}\s*")
DEFAULT = Path("/job/hostfile")
"""deepspeed's default hostfile."""
_ENTRY = re.compile(r"(?P<name>[^\s-]\S*)\s+slots=(?P<slots>\d{1,9})(\s.*)?")
SLOTS = 4096
"""Maximum slots of a host."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the job.

    Attributes:
        name: as in ssh's configuration.
        slots: ascending indices of devices to use, one per worker.
        line: line number in the hostfile; 0 without one.
    """

    name: str
    slots: tuple[int, ...]
    line: int = 0


def hosts_of(text: str, source: str) -> tuple[Host, ...]:
    """Parses a hostfile: hosts in order, with all their devices.

    Args:
        text: its content; blank lines and comments (`#`) are skipped.
        source: its name, for messages.

    Raises:
        LaunchError: a line is invalid, a host is repeated, or there is no host.
    """
    hosts: dict[str, Host] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        entry = _ENTRY.fullmatch(words)
        if entry is None or not 0 < int(entry["slots"]) <= SLOTS:
            problem = f"{source}:{number}: `{words}` isn't a host with its number of devices"
            raise LaunchError(problem, "a line is, e.g., `worker-1 slots=8`")
        name = entry["name"]
        if name in hosts:
            problem = f"{source}:{number}: {name} is in line {hosts[name].line} already"
            raise LaunchError(problem, "name each host once, with all its slots")
        hosts[name] = Host(name, tuple(range(int(entry["slots"]))), number)
    if not hosts:
        raise LaunchError(f"{source} names no host", "write a line for each: worker-1 slots=8")
    return tuple(hosts.values())


def filtered(hosts: Sequence[Host], include: str, exclude: str) -> tuple[Host, ...]:
    """The hosts that --include selects or --exclude leaves, in the hostfile's order.

    Args:
        hosts: all hosts.
        include: `HOST[:SLOT,...]@...`, where a host without slots means all of it; or empty.
        exclude: hosts and slots to leave out, in the same form; or empty.

    Raises:
        LaunchError: both are given, or one is malformed, names a missing host or slot, or leaves
            nothing.
    """
    if include and exclude:
        problem = f"--include {include} and --exclude {exclude} contradict each other"
        raise LaunchError(problem, "give one of them")
    if not include and not exclude:
        return tuple(hosts)
    option = f"--include {include}" if include else f"--exclude {exclude}"
    named = _named(include or exclude, option)
    slots_of = {host.name: host.slots for host in hosts}
    for name, slots in named.items():
        if name not in slots_of:
            problem = f"{option}: there is no host {name!r}"
            raise LaunchError(problem, f"the hosts are {', '.join(slots_of)}")
        missing = sorted(slots - {*slots_of[name]})
        if missing:
            problem = f"{option}: {name} has no slot {', '.join(map(str, missing))}"
            raise LaunchError(problem, f"its slots are 0 to {slots_of[name][-1]}")
    left = []
    for host in hosts:
        slots = {*host.slots}
        listed = (named[host.name] or slots) if host.name in named else set()
        if chosen := listed if include else slots - listed:
            left.append(replace(host, slots=tuple(sorted(chosen))))
    if not left:
        raise LaunchError(f"{option} leaves no device")
    return tuple(left)


def _named(text: str, option: str) -> dict[str, set[int]]:
    """Parses hosts with slots; empty slots for all."""
    hosts: dict[str, set[int]] = {}
    for part in text.split("@"):
        name, colon, slots = part.partition(":")
        words = slots.split(",") if colon else []
        if not name or not all(map(_INDEX.fullmatch, words)):
            problem = f"{option}: `{part}` isn't a host with slots"
            hint = "e.g. worker-1@worker-2:0,2: all of worker-1, two devices of worker-2"
            raise LaunchError(problem, hint)
        hosts.setdefault(name, set()).update(int(word) for word in words)
    return hosts


def first(hosts: Sequence[Host], nodes: int | None, slots: int | None) -> tuple[Host, ...]:
    """The first `nodes` hosts, with the first `slots` devices of each; None for all.

    Unlike here, deepspeed accepts numbers above the existing hosts or devices.

    Raises:
        LaunchError: there are fewer, or the number is 0.
    """
    for option, number in (("--num_nodes", nodes), ("--num_gpus", slots)):
        if number is not None and number < 1:
            raise LaunchError(f"{option} {number}: at least one is needed")
    if nodes is not None and nodes > len(hosts):
        there = f"there {noun_of(len(hosts), 'is', 'are')} {count_of(len(hosts), 'host')}"
        raise LaunchError(f"--num_nodes {nodes}: {there}")
    chosen = tuple(hosts[:nodes])
    for host in chosen:
        if slots is not None and slots > len(host.slots):
            problem = f"--num_gpus {slots}: {host.name} has slots={len(host.slots)}"
            line = f"see line {host.line} of the hostfile"
            raise LaunchError(problem, line if host.line else "that many devices were found there")
    return tuple(replace(host, slots=host.slots[:slots]) for host in chosen)
