"""Recognizes a call of all ranks that pasted code makes on one rank alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...core.quotation import shortened
from ...system.redaction import redacted
from .step import Case, Step

WAITS = re.compile(
    r"watchdog|collective operation|\b[NH]CCL\b.*time|\bhang(?:s|ing)?\b|\bhung\b|\bstuck\b"
    r"|never (?:returns|comes back)",
    re.IGNORECASE,
)
"""Words of a failure in which ranks wait."""
GUARD = re.compile(
    r"(?P<indent> *)(?:el)?if (?!.*\bnot\b)[^#]*"
    r"(?:is_(?:local_)?main_process|is_(?:local_)?process_zero"
    r"|is_world_process_zero|is_global_zero|is_rank_?(?:zero|0)|rank(?:\(\))? *== *0)[^#]*: *$"
)
"""A test for the first rank."""
OF_ALL = re.compile(
    r"(?P<call>(?!asyncio\b)[\w.]+\.(?:save_state|save_checkpoint|get_state_dict|gather(?:_for_metrics)?|barrier"
    r"|wait_for_everyone|all_reduce|all_gather\w*|broadcast\w*))\("
)
"""A call that all ranks have to make: sharded states are collected from each of them."""
MOST = 6
"""Maximum lines of a block to search."""
LONGEST = 80


def guarded_call(case: Case) -> Step | None:
    """Names a call that waits for all ranks, and the test that lets one rank alone make it."""
    if not WAITS.search(case.message):
        return None
    for guard, call in _guarded(case.record.log_tail):
        shown = shortened(redacted(guard.strip()), LONGEST)
        return Step(
            f"Call `{call}` on all ranks, outside of `{shown}`: it waits for every rank, and only"
            " the first one comes. Saving sharded weights and gathering are such calls."
        )
    return None


def _guarded(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The tests for the first rank, with a call of all ranks in their blocks."""
    for place, line in enumerate(lines):
        if (guard := GUARD.match(line)) is None:
            continue
        for inner in lines[place + 1 : place + 1 + MOST]:
            if inner.strip() and len(inner) - len(inner.lstrip()) <= len(guard["indent"]):
                break
            call = OF_ALL.search(inner)
            if call and sum(f"{call['call']}(" in each for each in lines) == 1:  # no partner
                yield line, call["call"]
                break
