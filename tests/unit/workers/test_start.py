"""Workers' environment and command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.core.hardware import VISIBLE
from safe_launch.core.placement import Placement
from safe_launch.core.request import LaunchRequest, WorkerOptions
from safe_launch.workers import environment, start
from safe_launch.workers.forkserver.client import Server
from safe_launch.workers.start import ENTRY
from support.links import ORDER

REQUEST = LaunchRequest(
    "train.py",
    is_module=False,
    arguments=("--lr", "1"),
    nproc=4,
    nproc_source="test",
    placement=Placement(nodes=3, least=3, rank=2, address="head", port=29_400),
)


def environments(request: LaunchRequest = REQUEST, **own: str) -> dict[int, dict[str, str]]:
    """The environments of the third node's workers."""
    node = environment.NodeContext(request, Server("mark", (), {}), own)
    return environment.environments(ORDER, node, "channel", Path("logs"))


def test_ranks_are_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local and global ranks have torchrun's variables."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = environments(NCCL_DEBUG="WARN")
    assert [found[place]["RANK"] for place in range(4)] == ["4", "5", "6", "7"]
    assert [found[place]["LOCAL_RANK"] for place in range(4)] == ["0", "1", "2", "3"]
    expected = {
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "MASTER_ADDR": "head",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "OMP_NUM_THREADS": "1",
        "NCCL_DEBUG": "WARN",
    }
    assert expected.items() <= found[3].items()


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults don't override it; either name of the allocator's options counts."""
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "x")
    found = environments(PYTORCH_NPU_ALLOC_CONF="y", NCCL_DEBUG="WARN")[0]
    assert "OMP_NUM_THREADS" not in found
    assert "PYTORCH_NPU_ALLOC_CONF" not in found
    assert found["NCCL_DEBUG"] == "WARN"


def test_a_device_and_cores_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Device 0 is the local rank's among the devices visible to the user."""
    monkeypatch.setenv(VISIBLE[0], "4, 5, 6, 7")
    monkeypatch.delenv(VISIBLE[1], raising=False)
    options = WorkerOptions(own_device=True, cores=((0,), (1,), (2, 3), (4,)))
    found = environments(replace(REQUEST, worker_options=options))[2]
    assert (found[VISIBLE[0]], found[VISIBLE[1]], found["LOCAL_RANK"]) == ("6", "2", "0")
    assert found["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (REQUEST, (str(ENTRY), "script", "train.py", "--lr", "1")),
        (
            replace(REQUEST, is_module=True, arguments=("-r=${local_rank}", "--lr", "1")),
            (str(ENTRY), "module", "train.py", "-r=${local_rank}", "--lr", "1"),
        ),
        (replace(REQUEST, is_program=True), ("train.py", "--lr", "1")),
    ],
    ids=["script", "module", "program"],
)
def test_the_command_line(request_: LaunchRequest, expected: tuple[str, ...]) -> None:
    """Our worker module runs scripts and modules; programs run directly."""
    assert start.command(request_)[-len(expected) :] == expected
