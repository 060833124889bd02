"""Real frameworks on two and four nodes: corrected everywhere, with the reference's losses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.hosts import needs_hosts, network
from support.jobs import ended, job
from support.stacks import CURRENT, EXAMPLES, OLDER, SCENARIOS, Stack
from support.trainings import (
    LATE,
    OTHER,
    REENTRANT,
    SINGLE,
    TO_OTHER,
    TO_REENTRANT,
    TO_STAGE_2,
    TRAINER,
    TWO,
    attempts,
    dummy,
    reference,
)

pytestmark = needs_hosts
ON_RANK_1 = SCENARIOS / "on_rank_1.py"
DUMMY_LOSS = ("ds_dummy_loss", "--ds_config", SCENARIOS / "raw3.json")


def losses(folder: Path) -> list[float]:
    """The losses written by rank 0."""
    found: list[float] = json.loads((folder / "losses.json").read_text())
    return found


@pytest.mark.parametrize(
    ("arguments", "change"),
    [(DUMMY_LOSS, TO_STAGE_2), (("ddp_lora",), TO_OTHER)],
    ids=["dummy-loss", "ddp-lora"],
)
def test_a_failure_of_node_1_is_corrected_on_both(
    arguments: tuple[object, ...], change: str, tmp_path: Path
) -> None:
    """Only node 1's rank fails, node 0's is busy; both continue with the same plan."""
    expected = reference(CURRENT, SCENARIOS / f"{arguments[0]}.py", "--single")
    command = (ON_RANK_1, *arguments, f"--loss_file={tmp_path / 'losses.json'}")
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *command) as (head, other),
    ):
        ended([head, other], 0)
        assert losses(tmp_path) == pytest.approx(expected, rel=1e-4)
        assert change in head.words()
        assert attempts(head.said()) == 2
        assert other.says("attempt 2: node 0 relaunches with ")
        if arguments == DUMMY_LOSS:
            assert head.says("attempt 1: failed: rank 1 on beta raised RuntimeError")


@pytest.mark.parametrize(
    ("stack", "script", "arguments", "own", "change"),
    [
        (
            CURRENT,
            EXAMPLES / "finetune.py",
            (f"--deepspeed={EXAMPLES / 'zero2.json'}", *REENTRANT),
            (),
            TO_OTHER,
        ),
        (
            CURRENT,
            EXAMPLES / "finetune.py",
            (f"--deepspeed={SCENARIOS / 'zero3.json'}", *REENTRANT),
            (),
            TO_OTHER,
        ),
        (
            OLDER,
            SCENARIOS / "hf_lora.py",
            (f"--deepspeed={SCENARIOS / 'zero3_lora.json'}", *OTHER),
            ("--use_lora=True",),
            TO_REENTRANT,
        ),
    ],
    ids=["zero2", "zero3", "lora-before-the-launch"],
)
def test_the_trainer_is_corrected_on_both_nodes(
    stack: Stack,
    script: Path,
    arguments: tuple[str, ...],
    own: tuple[str, ...],
    change: str,
    tmp_path: Path,
) -> None:
    """Hugging Face's Trainer, corrected in its first pass and before the launch."""
    expected = reference(stack, script, *TRAINER, *own, "--per_device_train_batch_size=8")
    batch = "--per_device_train_batch_size=4"
    told = (*TRAINER, *own, batch, *arguments, f"--loss_file={tmp_path / 'losses.json'}")
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, script, *told, stack=stack) as (head, other),
    ):
        ended([head, other], 0)
        assert losses(tmp_path) == pytest.approx(expected, rel=1e-4)
        assert change in head.words()
        assert attempts(head.said()) == 1


def test_both_nodes_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    """Node 0 names a universal checkpoint; each node finds it in its Trainer's folder."""
    expected = reference(CURRENT, LATE, *SINGLE, "--late=never")
    own = (f"--output_dir={tmp_path / 'out'}", f"--loss_file={tmp_path / 'losses.json'}")
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, LATE, *TWO, *dummy(tmp_path), *own) as (head, other),
    ):
        ended([head, other], 0)
        assert losses(tmp_path) == pytest.approx(expected, rel=5e-5)
        assert "resumes from checkpoint-4 (5 steps had been done), as a universal" in head.words()
        assert attempts(head.said()) == 2


def test_four_nodes_through_bad_weather(tmp_path: Path) -> None:
    """With delay and packet loss on every link, all four make the same correction."""
    script = SCENARIOS / "ddp_unused.py"
    expected = reference(CURRENT, script, "--single")
    with network("alpha", "beta", "gamma", "delta") as hosts:
        for host in hosts:
            host.weather(0.025, 0.02)
        told = (script, f"--loss_file={tmp_path / 'losses.json'}")
        with job(tmp_path, hosts, *told, own=["--node-timeout=30"]) as launchers:
            ended(launchers, 0)
            assert losses(tmp_path) == pytest.approx(expected, rel=1e-4)
            assert "find_unused_parameters: False -> True" in launchers[0].words()
            assert attempts(launchers[0].said()) == 2


def test_what_a_worker_says_is_settled_on_all_nodes(tmp_path: Path) -> None:
    """Adapters without an argument, on a node with two workers and one with a single one."""
    script = SCENARIOS / "hf_lora_hidden.py"
    single = (*TRAINER, "--per_device_train_batch_size=6")
    expected = reference(CURRENT, SCENARIOS / "hf_lora.py", *single, "--use_lora=True")
    command = (
        script,
        *TRAINER,
        "--per_device_train_batch_size=2",
        *REENTRANT,
        f"--loss_file={tmp_path / 'losses.json'}",
    )
    workers = (["--nproc=1"], ["--nproc=2"])
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *command, each=workers) as (head, other),
    ):
        ended([head, other], 0)
        assert losses(tmp_path) == pytest.approx(expected, rel=1e-4)
        assert TO_OTHER in head.words()
        assert "settled at " in head.words()
        assert "attempt 1: succeeded" in head.words()
        assert head.says(r"on 1 \+ 2 x cpu")


def test_the_rank_that_died_is_the_root(tmp_path: Path) -> None:
    """Node 1's rank dies silently while node 0's waits for it in gloo: it is named."""
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, SCENARIOS / "dies_alone.py", "--silently") as (head, other),
    ):
        ended([head, other], 7)
        assert "attempt 1: failed: rank 1 on beta left with exit code 7" in head.words()
