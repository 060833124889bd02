"""Real known failures end a plain run and are corrected to the same losses.

Every case runs three times on each stack of framework versions: in a single process without
checkpointing (the reference), on two ranks without a launcher (to prove that the failure is real),
and under safe-launch.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.stacks import CURRENT, OLDER, SCENARIOS, STACKS, Stack
from support.trainings import (
    CASES,
    FIRST_FIVE,
    REENTRANT,
    TO_OTHER,
    TRAINER,
    Case,
    attempts,
    dies_plainly,
    launched,
    losses_of,
    reference,
    trains_corrected,
)


@pytest.mark.parametrize(
    ("stack", "case"),
    [
        pytest.param(stack, case, id=f"{stack.name}-{case.id}")
        for stack in STACKS
        for case in CASES
        # test_five_failures.py has the current stack's.
        if stack is OLDER or case.name not in FIRST_FIVE or stack.name not in case.fails_on
    ],
    indirect=["stack"],
)
def test_dies_plainly_and_trains_corrected(stack: Stack, case: Case, tmp_path: Path) -> None:
    """Plainly it fails; corrected it has the reference's losses, with at most one relaunch."""
    if stack.name in case.fails_on:
        dies_plainly(stack, case, tmp_path)
    trains_corrected(stack, case, tmp_path)


def test_learns_from_the_worker_what_no_argument_tells(stack: Stack, tmp_path: Path) -> None:
    """Adapters only in code are settled in the worker, in the first attempt."""
    script = SCENARIOS / "hf_lora.py"
    single = (*TRAINER, "--per_device_train_batch_size=8", "--use_lora=True")
    expected = reference(stack, script, *single)
    ours, told = launched(
        stack,
        tmp_path,
        "safe-launch",
        "--nproc=2",
        "--log-dir=runs",
        SCENARIOS / "hf_lora_hidden.py",
        *TRAINER,
        "--per_device_train_batch_size=4",
        *REENTRANT,
    )
    assert ours == pytest.approx(expected, rel=1e-4)
    assert TO_OTHER in told
    assert "settled  at " in told
    assert attempts(told) == 1


def test_live_exception_of_ddp_is_recorded_and_explained(stack: Stack, tmp_path: Path) -> None:
    """Under `--fix suggest` the failure occurs and ends the run with its explanation."""
    run = ("--nproc=2", "--fix=suggest", "--log-dir=runs", SCENARIOS / "ddp_lora.py")
    done = stack.run("safe-launch", *run, cwd=tmp_path)
    assert done.returncode == 1
    assert "(ddp-parameter-ready-twice)" in done.stderr
    assert TO_OTHER in done.stderr
    assert attempts(done.stderr) == 1
    root = records(tmp_path)[0]
    assert root["exception"] == "builtins.RuntimeError"
    assert re.fullmatch(r"blocks\.\d\.0\.lora_[AB]\.weight", root["parameters"][0])
    assert root["model"]["frozen_parameters"] == 2 * (16 * 16 + 16)
    assert root["observed"]["find_unused_parameters"] is True
    assert root["observed"]["gradient_checkpointing"] == "reentrant"
    assert root["frames"][0]["file"].endswith("ddp_lora.py")
    assert root["frames"][0]["source"] == "main()"
    assert root["step"] == 0


@pytest.mark.parametrize("stage", [2, 3])
def test_names_the_parameter_where_deepspeed_prints_a_number(
    stack: Stack, stage: int, tmp_path: Path
) -> None:
    """The record has the parameter's name, stage and versions, even without a message."""
    config = str(SCENARIOS / f"raw{stage}.json")
    run = ("--nproc=2", "--fix=suggest", "--log-dir=runs", SCENARIOS / "ds_block_twice.py")
    done = stack.run("safe-launch", *run, "--deepspeed_config", config, cwd=tmp_path)
    assert done.returncode == 1
    root = records(tmp_path)[0]
    assert all(name.startswith("block.") for name in root["parameters"])
    assert re.search(rf"parameters? {re.escape(root['parameters'][0])}", done.stderr)
    assert root["observed"]["zero_stage"] == stage
    assert root["versions"]["deepspeed"].startswith("0.1")
    flat = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert re.search(r"ds_block_twice\.py:\d+ in main: engine\.backward\(loss\)", flat)


def test_shows_the_dummy_loss_itself(stack: Stack, tmp_path: Path) -> None:
    """The user's expression has file, line and text, and advice to stay on stage 3."""
    config = str(SCENARIOS / "raw3.json")
    run = ("--nproc=2", "--fix=suggest", "--log-dir=runs", SCENARIOS / "ds_dummy_loss.py")
    done = stack.run("safe-launch", *run, "--ds_config", config, cwd=tmp_path)
    source = (SCENARIOS / "ds_dummy_loss.py").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "dummy_loss = sum(" in text)
    flat = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert f"ds_dummy_loss.py:{line}: dummy_loss = sum(" in flat
    assert "0.0 * output.sum()" in flat


@pytest.mark.parametrize("arguments", [(), ("--silently",)], ids=["raises", "leaves"])
def test_the_rank_that_died_is_the_root(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A rank dies while the other waits for it in gloo: the dead one is named."""
    script = SCENARIOS / "dies_alone.py"
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", script, *arguments)
    done = CURRENT.run(*run, cwd=tmp_path)
    assert done.returncode == (7 if arguments else 1)
    assert "attempt 1: failed: rank 1 " in done.stderr
    assert "relaunching" not in done.stderr
    if not arguments:
        assert done.stderr.count("what     KeyError: 'sample 12 has no label'\n") == 1


def test_wrong_gradients_are_never_trained_on(stack: Stack, tmp_path: Path) -> None:
    """Settings that train wrongly without an error change before the first step.

    DeepSpeed 0.16.9 at stage 0 with bf16 and a reentrant block that runs twice: plainly it
    finishes with wrong losses; corrected they are within bf16's noise, half a percent here. The
    current DeepSpeed has no such fault and is left alone.
    """
    script = SCENARIOS / "ds_block_twice.py"
    expected = reference(stack, script, "--single")
    config = ("--deepspeed_config", str(SCENARIOS / "raw0_bf16.json"))
    plain = losses_of(stack, script, *config, ranks=2)
    ours, told = launched(
        stack, tmp_path, "safe-launch", "--nproc=2", "--log-dir=runs", script, *config
    )
    if stack.name == "older":
        assert plain != pytest.approx(expected, rel=1e-2)
        assert ours == pytest.approx(expected, rel=5e-3)
        assert TO_OTHER in told
    else:
        assert ours == pytest.approx(plain, rel=1e-6)
        assert attempts(told) == 1


def test_gradients_that_ddp_reduces_too_early_are_never_trained_on(
    stack: Stack, tmp_path: Path
) -> None:
    """No error is raised if all trained weights are in a reentrant block that runs twice."""
    script = SCENARIOS / "ddp_twice.py"
    expected = reference(stack, script, "--single")
    plain = losses_of(stack, script, ranks=2)
    assert plain != pytest.approx(expected, rel=1e-3)
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", script)
    ours, told = launched(stack, tmp_path, *run)
    assert ours == pytest.approx(expected, rel=1e-4)
    assert TO_OTHER in told
    assert attempts(told) == 1


def test_a_frozen_block_may_run_twice_under_ddp(stack: Stack, tmp_path: Path) -> None:
    """Its nested backward passes complete no parameter's gradient."""
    script = SCENARIOS / "ddp_twice.py"
    expected = reference(stack, script, "--single", "--embedded")
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", script, "--embedded")
    ours, told = launched(stack, tmp_path, *run)
    assert ours == pytest.approx(expected, rel=1e-4)
    assert attempts(told) == 1


def records(folder: Path) -> list[dict[str, Any]]:
    """The failure records of the first attempt, the root first."""
    (path,) = (folder / "runs").glob("*/attempt-1/failures.json")
    return [one["record"] for one in json.loads(path.read_text())["findings"]]
