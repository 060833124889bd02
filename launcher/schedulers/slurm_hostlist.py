"""Parses Slurm's short forms: lists of hosts, tasks per node, generic resources."""

from __future__ import annotations

import re
from collections.abc import Iterator

HOSTS = 65_536
"""Maximum hosts of a list, Slurm's maximum per range (MAX_RANGE of src/common/hostlist.h)."""
BRACKETS = 16
"""Maximum brackets in a host's name; Slurm uses one or two."""


def hosts(text: str) -> Iterator[str]:
    """The hosts of a list such as `n[1-3,07-10],gpu-a[01-02]-x`, in order.

    Numbers keep the digits of their range's start. With several brackets in a name, the last varies
    first.

    Raises:
        ValueError: a bracket isn't closed, a range is invalid, or there are more than `HOSTS`.
    """
    count = 0
    for part in _parts(text):
        if part.count("[") > BRACKETS:
            raise ValueError(f"{part[:60]!r} has more than {BRACKETS} brackets")
        for host in _expanded(part):
            if count == HOSTS:
                raise ValueError(f"it names more than {HOSTS:,} hosts")
            count += 1
            yield host


def _parts(text: str) -> Iterator[str]:
    """The list, split at commas outside brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"the brackets of {text!r} don't match")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"the brackets of {text!r} don't match")
    yield text[start:]


def _expanded(part: str) -> Iterator[str]:
    """The hosts of a part."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        if part.strip():
            yield part.strip()
        return
    inside, _, tail = rest.partition("]")
    for piece in inside.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", piece)
        if match is None:
            raise ValueError(f"{piece!r} in {part!r} is neither a number nor a range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"the range {piece!r} in {part!r} goes backwards")
        for value in range(int(first), int(last) + 1):
            for end in _expanded(tail) if tail else ("",):
                yield f"{head.strip()}{value:0{len(first)}d}{end}"


def tasks_on(text: str, node: int) -> int | None:
    """The tasks of a node by a list such as `2(x3),1`; None if it is shorter.

    Raises:
        ValueError: the text has another form.
    """
    first = 0
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\(x(\d+)\))?\s*", part)
        if match is None:
            raise ValueError(f"{part!r} isn't a number of tasks")
        first += int(match[2] or 1)
        if node < first:
            return int(match[1])
    return None


def devices(text: str) -> int | None:
    """The number of devices in a request: `4`, `a100:4`, `gpu:a100:2,gpu:v100:1`, `gres/npu:8`.

    None without devices: `cpu=4`, `shard:2`.
    """
    total, seen = 0, False
    for part in text.split(","):
        match = re.fullmatch(r"(?:(.*?)[:=])?(\d+)(?:\([^)]*\))?", part.strip())
        if match is None:
            continue
        name = (match[1] or "").lower().removeprefix("gres/").partition(":")[0]
        if name in NO_DEVICES:
            continue
        total, seen = total + int(match[2]), True
    return total if seen else None


NO_DEVICES = frozenset(
    {"cpu", "mem", "node", "billing", "energy", "pages", "vmem", "fs", "bb", "license"}
    | {"shard", "mps", "nic", "tmpdisk"}
)
"""Resources that aren't accelerators (slurm.conf(5): AccountingStorageTRES, GresTypes)."""
