"""Placement in environments recorded from a real Slurm (`record_slurm.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.schedulers.read_placement import placement_of
from safe_launch.schedulers.this_host import Here
from support.stacks import TESTS

RECORDED = TESTS / "fixtures" / "slurm"
FOUR = [(0, 4, 0, 2, 1), (1, 4, 1, 2, 1), (2, 4, 0, 2, 1), (3, 4, 1, 2, 1)]
PLACES = {
    # for each task: rank, nodes, index on the host, launchers on the host, workers
    "batch-exclusive": [(0, 2, 0, 1, 2), (1, 2, 0, 1, 2)],
    "batch-one-task-a-gpu": FOUR,
    "batch-one-task-a-node": [(0, 2, 0, 1, 2), (1, 2, 0, 1, 2)],
    "batch-typed-gres": [(0, 2, 0, 1, 2), (1, 2, 0, 1, 2)],
    "batch-without-srun": "SLURM_NNODES",
    "batch-without-srun-one-node": [(0, 1, 0, 1, 2)],
    "one-node": [(0, 1, 0, 1, 2)],
    "one-task-a-gpu-bound": FOUR,
    "one-task-a-gpu-visible-to-all": FOUR,
    "one-task-a-node": [(0, 2, 0, 1, None), (1, 2, 0, 1, None)],
    "one-task-a-node-gpus": [(0, 2, 0, 1, 3), (1, 2, 0, 1, 1)],
    "one-task-a-node-gpus-per-node": [(0, 2, 0, 1, 2), (1, 2, 0, 1, 2)],
    "one-task-a-node-typed-gres": [(0, 2, 0, 1, 2), (1, 2, 0, 1, 2)],
    "salloc": "SLURM_NNODES",
    "three-tasks-over-two-nodes": [(0, 3, 0, 2, 1), (1, 3, 1, 2, 1), (2, 3, 0, 1, 1)],
    "two-gpus-a-task": [(0, 2, 0, 2, 2), (1, 2, 1, 2, 2)],
    "two-typed-gpus-a-task": [(0, 2, 0, 2, 2), (1, 2, 1, 2, 2)],
}
"""The places of each case, or a word of its refusal."""


def recorded(path: Path) -> dict[str, str]:
    """A task's variables."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def files(case: str) -> list[Path]:
    """A case's recorded tasks, in order."""
    several = sorted(RECORDED.glob(f"{case}-[0-9].env"))
    return several or [RECORDED / f"{case}.env"]


@pytest.mark.parametrize("case", PLACES)
def test_the_place_of_each_task(case: str) -> None:
    """Each task has its own place, and all share node 0 and the job."""
    expected, found = PLACES[case], []
    for path in files(case):
        environment = recorded(path)
        name = environment.get("SLURMD_NODENAME", "login")
        here = Here(name, lambda: "", has_terminal=False, owns=lambda _: False)
        if isinstance(expected, str):
            with pytest.raises(LaunchError, match=expected):
                placement_of({}, None, environment, here)
        else:
            found.append(placement_of({}, None, environment, here))
    if not isinstance(expected, str):
        places = [(one.rank, one.nodes, one.local, one.beside, one.nproc) for one in found]
        assert places == expected
        assert len({(one.address, one.port, one.job) for one in found}) == 1


def test_every_recorded_task_is_looked_at() -> None:
    """No recording is unused."""
    assert {path for case in PLACES for path in files(case)} == set(RECORDED.glob("*.env"))
