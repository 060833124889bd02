"""Ranks that hang after their training, as objects are destroyed in native code.

Seen with torch 2.13: destroying a process group joins a gloo thread while holding the interpreter's
lock, for which that thread waits.
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
"""Calls in a source line with which a script may wait on purpose."""


def at_end(report: HangReport) -> frozenset[int]:
    """The ranks that only need to exit but don't.

    All others, including rank 0, have ended after the same number of steps. These ranks are idle,
    and wait neither for others nor on purpose.
    """
    ended = {standing.rank for standing in report.standings if standing.phase is Phase.ENDED}
    rest = [standing for standing in report.standings if standing.rank not in ended]
    steps = {standing.step for standing in report.standings}
    if 0 not in ended or len(steps) > 1 or not all(steps):
        return frozenset()
    if any(
        is_busy(standing) or standing.children or not _is_ending(standing.frames)
        for standing in rest
    ):
        return frozenset()
    return frozenset(standing.rank for standing in rest)


def _is_ending(frames: Sequence[Frame]) -> bool:
    if not frames:
        return False
    last = frames[-1]
    if last.function == "destroy_process_group":
        return True
    is_elsewhere = place_of(frames) is Place.ELSEWHERE
    return is_elsewhere and not _WAITS_ON_PURPOSE.search(last.source)
