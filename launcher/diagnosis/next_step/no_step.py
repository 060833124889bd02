"""Advises on a training that ended without an optimizer step."""

from __future__ import annotations

import re

from .step import Case, Step

NONE = "the training ended without an optimizer step: line {line} counts none"
FEWER = (
    "the training ended without an optimizer step: {count} {what} are fewer than one batch"
    " ({name} {size})"
)
"""Messages of the evidence in a log."""
MESSAGE = re.compile(
    r"ended without an optimizer step: "
    r"(?:(?P<count>\d+) (?P<what>\w+) .*\((?P<name>\S+) (?P<size>\d+)\))?"
)


def no_step(case: Case) -> Step | None:
    """Names the number to change, so that there is at least one batch."""
    match = MESSAGE.search(case.message) if not case.kind else None
    if match is None:
        return None
    after = (
        "The saved weights are the untrained ones. A newer version of the framework may train the"
        " last, smaller batch, too."
    )
    if match["count"]:
        return Step(
            f"Lower `{match['name']}` to {match['count']} or less, or give at least"
            f" {match['size']} {match['what']}: the only batch isn't full, is dropped, and nothing"
            f" is ever updated. {after}"
        )
    return Step(
        "Give more samples or epochs, or a smaller batch (per rank, ranks and accumulation"
        f" multiplied), so that there is at least one step: the loop has nothing to do. {after}"
    )
