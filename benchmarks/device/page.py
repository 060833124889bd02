"""The page of measurements on devices, from the records of scripts/device-check."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PARTS = {
    "context": (
        "bytes of a device before and after its context, a product of matrices, an all_reduce",
        "the vendor's; two ranks on two devices, or one",
    ),
    "forked": (
        "who has a device open while forked workers train, and whether they train as the CPU does",
        "none; a worker a device, at most two",
    ),
    "ends": (
        "a script that keeps its process group ends, beside torchrun and a fresh process of ours",
        "the vendor's; two ranks on two devices, or one",
    ),
    "memory": (
        "38 trainings of 0.1 to 1.5 B parameters: estimates, torch's allocator, the driver's count",
        "torch's fake one, rank 0 of 8",
    ),
    "failures": (
        "the first failures die plainly, and train corrected with the losses of a single process",
        "the vendor's; two ranks on two devices, or one",
    ),
    "out_of_memory": (
        "the allocator refuses for real, and the next plan fits",
        "the vendor's; two ranks on two devices, or one",
    ),
    "hang": (
        "a rank that never enters a collective is named, with its line",
        "the vendor's, two ranks; where they share a GPU, gloo as well",
    ),
    "steps": (
        "what the guards add to a tiny step, beside torchrun in the same run",
        "the vendor's, one rank",
    ),
    "numa": ("`--numa-binding` binds the workers or is refused in words, beside torchrun", "none"),
}
INTRODUCTION = """\
# On real devices

Written by `scripts/device-check --page` from the records in `benchmarks/results`.
`scripts/device-check` makes one in less than eight minutes, on a machine with GPUs of NVIDIA's or
with NPUs. It wants safe-launch and torch in its Python, does what it can without DeepSpeed,
transformers, accelerate, peft and pytest, and says what is missing in its first seconds. Nothing is
compiled or fetched. `--only` and `--skip` choose parts; `--cpu` is a dry run on
[the stand-in](../design/devices.md) for NPUs, which tells nothing about a device.
"""
NOTHING = """\
## What was measured

Nothing yet: there is no record, as no machine of ours has such a device. What the stand-in shows,
and what only a device can, is told in [devices without the devices](../design/devices.md).
"""


def records(folder: Path) -> list[dict[str, Any]]:
    """The records in a folder, by name."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("device-*.json"))]


def text(found: Sequence[dict[str, Any]]) -> str:
    """The page."""
    rows = [f"| `{name}` | {what} | {backend} |" for name, (what, backend) in PARTS.items()]
    table = ["| part | what it does | backend |", "|---|---|---|", *rows, ""]
    sections = [line for record in found for line in section(record)] or [NOTHING.rstrip(), ""]
    return "\n".join([INTRODUCTION, *table, *sections])


def section(record: dict[str, Any]) -> Iterator[str]:
    """A device: the machine, the parts, the figures of each."""
    machine = record["machine"]
    count = f"{machine['count']} x " * (machine["count"] > 1)
    yield f"## {count}{machine['name']}, {record['date']}\n"
    seen = ", ".join(f"{name} {value}" for name, value in machine["seen"].items())
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    yield f"{machine['host']}. torch sees {seen}. {packages}. {record['seconds']:.0f} s in all.\n"
    yield "| part | verdict | seconds | |"
    yield "|---|---|---:|---|"
    for name, part in record["parts"].items():
        reason = part["reason"].strip().rpartition("\n")[2]
        yield f"| `{name}` | {part['verdict']} | {part['seconds']:.0f} | {cell(reason)} |"
    left_out = record["left_out"]
    if left_out:
        yield f"\nNot asked for: {', '.join(f'`{name}`' for name in left_out)}."
    for part in record["parts"].values():
        if part["figures"]:
            yield f"\n### {part['title']}\n"
            yield "| what | here | beside |"
            yield "|---|---|---|"
            for figure in part["figures"]:
                here = f"**wrong:** {figure['here']}" if figure["wrong"] else figure["here"]
                yield f"| {cell(figure['what'])} | {cell(here)} | {cell(figure['beside'])} |"
    yield ""


def cell(words: str) -> str:
    """The text of a table cell."""
    return " ".join(words.replace("|", "\\|").split())
