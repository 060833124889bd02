"""Ranks that hang at the end of a finished training, and ranks that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from safe_launch.evidence.failure_record import Frame
from safe_launch.hangs.places import hung_at_end
from safe_launch.hangs.standing import Child, Standing
from safe_launch.progress.board import Phase

C10D = "/lib/torch/distributed/distributed_c10d.py"
ENDED = Standing(0, pid=4, phase=Phase.ENDED, step=9, state="")
LAST = Standing(
    *(1, "", 5, Phase.TRAINING, 9, 99.0, "S", 0.0, 0, 2.0),
    frames=(Frame("/u/train.py", 40, "<module>", "main()"),),
)


def hung(*standings: Standing) -> frozenset[int]:
    """The ranks that hang."""
    return hung_at_end(standings)


@pytest.mark.parametrize(
    "frame",
    [
        Frame("/u/train.py", 40, "<module>", "main()"),
        Frame("/u/train.py", 30, "main", "return losses"),
        Frame(C10D, 2100, "destroy_process_group", "_world.pg_map.clear()"),
        Frame("/u/train.py", 7, "__del__", "self.group = None"),
    ],
)
def test_objects_that_are_destroyed(frame: Frame) -> None:
    """When a function returns or the process group is destroyed."""
    assert hung(ENDED, replace(LAST, frames=(frame,))) == {1}


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 8},  # has steps left
        {"step": None},
        {"cpu": 1.9},
        {"io": 1 << 20},
        {"children": (Child(9, "uploader", "S", 0.0),)},
        {"frames": ()},
        {"frames": (Frame(C10D, 5000, "barrier", "work.wait()"),)},
        {"frames": (Frame("/u/train.py", 41, "<module>", "time.sleep(3600)"),)},
        {"frames": (Frame("/u/serve.py", 41, "<module>", "peer, _ = server.accept()"),)},
        {"frames": (Frame("/lib/python3.11/threading.py", 999, "join", "lock.acquire()"),)},
    ],
)
def test_who_may_have_something_to_do(changes: dict[str, Any]) -> None:
    """Ranks that may still work, or wait on purpose."""
    assert hung(ENDED, replace(LAST, **changes)) == frozenset()


def test_rank_0_still_runs() -> None:
    """Rank 0 may be saving."""
    assert hung(replace(LAST, rank=0), replace(ENDED, rank=1)) == frozenset()
    assert hung(replace(LAST, rank=0), LAST) == frozenset()
    before = (replace(ENDED, step=None), replace(LAST, step=None))
    assert hung(*before) == frozenset()
