"""Ranks that hang after their training, as objects are destroyed in native code.

Seen with torch 2.13: when a process group goes, a thread of gloo's is joined with the interpreter's
lock held, while that thread waits for the lock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..evidence.failure_record import Frame
from ..progress.board import Phase
from .activity import is_busy
from .places import Place, place_of
from .report import HangReport

_WAITS_ON_PURPOSE = re.compile(
    r"\b(accept|acquire|communicate|get|input|join|listen|poll|read\w*|recv\w*|result|"
    r"run_forever|select|serve\w*|sleep|until|wait\w*)\w*\("
)
"""Calls with which a script may wait for something else than its end, in a source line."""


def at_end(report: HangReport) -> frozenset[int]:
    """The ranks that have only to exit, and don't.

    All others have ended, rank 0 among them, after the same number of steps. These ranks do
    nothing, and wait neither for others nor for anything that a script waits for on purpose.
    """
    ended = {each.rank for each in report.standings if each.phase is Phase.ENDED}
    rest = [each for each in report.standings if each.rank not in ended]
    steps = {each.step for each in report.standings}
    if 0 not in ended or len(steps) > 1 or not all(steps):
        return frozenset()
    if any(is_busy(each) or each.children or not _is_ending(each.frames) for each in rest):
        return frozenset()
    return frozenset(each.rank for each in rest)


def _is_ending(frames: Sequence[Frame]) -> bool:
    if not frames:
        return False
    last = frames[-1]
    if last.function == "destroy_process_group":
        return True
    is_elsewhere = place_of(frames) is Place.ELSEWHERE
    return is_elsewhere and not _WAITS_ON_PURPOSE.search(last.source)
