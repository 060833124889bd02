"""Detects a training that ends without an optimizer step, or whose error was swallowed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..diagnosis.next_step.no_step import FEWER, NONE
from ..evidence.failure_record import FailureRecord
from .attempts import Evidence
from .progress_signs import IS_COMPLETE, STEPS, Written

TRAINS = re.compile(rf"{STEPS}|(?:^|[\n\r]) *\d+%\|")
"""A step, or a bar without a name as the Trainer's; other bars may be of data."""
SAMPLES = re.compile(
    r"(?<![\w./-])(?P<count>\d[\d,]*) (?:\w+ )?(?P<what>prompts|samples|examples|sequences|rows)\b"
    r"|\b(?:[Nn]um(?:ber of)?|[Tt]otal)[ _](?:train(?:ing)?[ _])?(?P<kind>prompts|samples|examples)"
    r"\W{1,3}(?P<number>\d[\d,]*)\b"
)
BATCH = re.compile(
    r"(?<!micro_)(?<!micro-)(?<!device_)\b(?P<name>(?:\w+[._-])*?(?:rollout|global|train|total)"
    r"(?:[._-]\w+)?[._-]batch[_-]size)['\"]?\s*[=: ]\s*(?P<size>\d+)\b"
)
"""An option with the samples of one update of all ranks."""
OF_MICRO = re.compile(r"micro|per_device|per_gpu|eval|forward")
ZERO = re.compile(
    r"Total optimization steps\W{1,3}0\b|\bno training batches\b"
    r"|\b(?:num|total|max)_(?:train(?:ing)?_|update_|optimi[sz]er_)?(?:steps|iters)\W{1,4}0\b(?!\.)"
    r"|\b0 (?:optimi[sz](?:er|ation)|training|update) steps\b"
    r"|'train_steps_per_second': 0\.0\b|Total length of `DataLoader` across ranks is zero",
    re.IGNORECASE,
)
"""Numbers of a loop that does nothing."""


def trained_nothing(lines: Sequence[Written]) -> Evidence | None:
    """Evidence that a finished training made no step, from all the lines of its log."""
    if not any(IS_COMPLETE.search(line.text) for line in lines) or has_trained(lines):
        return None
    if zero := next((line for line in lines if ZERO.search(line.text)), None):
        return _evidence(zero, NONE.format(line=zero.number))
    counts = [(line, match) for line in lines for match in SAMPLES.finditer(line.text)]
    batches = [(line, match) for line in lines for match in BATCH.finditer(line.text)]
    sizes = [
        (int(match["size"]), match["name"])
        for _, match in batches
        if not OF_MICRO.search(match["name"])
    ]
    if not counts or not sizes:
        return None
    most, line, what = max(
        (
            (int(number.replace(",", "")), line, match["what"] or match["kind"])
            for line, match in counts
            if (number := match["count"] or match["number"])
        ),
        key=lambda count: count[0],
    )
    larger = [(size, name) for size, name in sizes if size > most > 0]
    if not larger:
        return None
    size, name = min(larger)
    return _evidence(line, FEWER.format(count=most, what=what, name=name, size=size))


def has_trained(lines: Sequence[Written]) -> bool:
    """Whether any line is of a running training."""
    return any(TRAINS.search(line.text) for line in lines)


def _evidence(line: Written, message: str) -> Evidence:
    record = FailureRecord(None, float(line.number), message=message)
    return Evidence(record, line.file, ((line.number, line.text.strip()),))
