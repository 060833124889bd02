"""Scripts that start their ranks by `torch.multiprocessing.spawn`."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support.processes import PROGRAMS, launch

SPAWNS = PROGRAMS / "spawns.py"
LINE = 1 + SPAWNS.read_text().split("\n").index(
    "    mp.spawn(train, args=(2, sys.argv[1]), nprocs=2)"
)


@pytest.mark.parametrize("is_own", [False, True], ids=["environment", "own"])
def test_they_train_in_a_single_worker(workshop: Path, is_own: bool) -> None:
    """As under python, at the environment's and the script's port; under torchrun both hang."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1]) if is_own else ""
    done = launch(workshop, "--nproc=1", SPAWNS, port)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n").count("sum 3.0") == 2
    assert f"spawns.py:{LINE}: torch.multiprocessing.spawn starts 2 processes. If" in done.stderr


def test_several_workers_start_too_many(workshop: Path) -> None:
    """One line for all ranks, and the run continues unchanged."""
    done = launch(workshop, "--nproc=2", SPAWNS, "nowhere")
    assert done.returncode == 0, done.stderr
    found = [one for one in done.stderr.splitlines() if "torch.multiprocessing.spawn" in one]
    assert len(found) == 1
    assert f"spawns.py:{LINE}: " in found[0]
    assert "starts 2 processes in each of 2 workers" in found[0]
