"""After a real failure in mid-training the run resumes from its newest complete checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safe_launch.checkpoints import save_folders
from safe_launch.checkpoints.checkpoint import Checkpoint, Saves
from safe_launch.core.choices import Engine
from support.stacks import CURRENT, EXAMPLES, SCENARIOS, Stack
from support.trainings import (
    LATE,
    REENTRANT,
    SINGLE,
    TO_OTHER,
    TO_STAGE_2,
    TWO,
    attempts,
    dummy,
    launched,
    reference,
)
from support.warm_python import Training, warm

OURS = ("safe-launch", "--nproc=2", "--log-dir=runs")
UNCHECKED = (".py", ".md")
"""Suffixes of files that aren't needed to resume and whose truncation can't be seen."""


def flat(told: str) -> str:
    """The launcher's output, as one line."""
    return " ".join(told.replace("[safe-launch]", "").split())


def every_cut_is_noticed(output_dir: Path, newest: str, older: str, scratch: Path) -> None:
    """Truncates each file of a real checkpoint in turn: the older checkpoint is used."""
    names = [
        path.relative_to(output_dir / newest)
        for path in sorted((output_dir / newest).rglob("*"))
        if path.is_file() and path.suffix not in UNCHECKED
    ]
    assert len(names) > 7
    for name in names:
        for part in (0.0, 0.5, 0.99):
            folder = scratch / "cut"
            for each in (newest, older):
                shutil.copytree(output_dir / each, folder / each)
            path = folder / newest / name
            whole = path.read_bytes()
            path.write_bytes(whole[: min(int(len(whole) * part), len(whole) - 8)])
            found = save_folders.find_all(Saves(str(folder)), {2})
            assert [one.folder.name for one in found] == [newest, older]
            assert [isinstance(one, Checkpoint) for one in found] == [False, True], (name, part)
            assert found[0].is_cut_off, found[0].reason
            shutil.rmtree(folder)


def test_goes_on_from_the_newest_that_is_whole(stack: Stack, tmp_path: Path) -> None:
    """Step 6 fails under ZeRO-2, and checkpoint 5 is truncated; it resumes after 4."""
    expected = reference(stack, LATE, *SINGLE)
    own = (f"--deepspeed={EXAMPLES / 'zero2.json'}", *REENTRANT, "--save_steps=1")
    cut = "--cut_off=checkpoint-5/global_step5/*optim_states.pt"
    ours, told = launched(stack, tmp_path, *OURS, LATE, *TWO, *own, cut, "--looks=True")
    assert ours == pytest.approx(expected, rel=5e-5)
    assert TO_OTHER in told
    assert attempts(told) == 2
    assert "resumes from checkpoint-4 (5 steps had been done); checkpoint-5 is skipped:" in flat(
        told
    )
    output_dir = tmp_path / "out"
    assert (output_dir / "set-aside-1" / "checkpoint-5").is_dir()
    (newest, *_) = save_folders.find_all(Saves(str(output_dir)), {2})
    assert (newest.step, newest.engine, newest.zero_stage, newest.world) == (
        8,
        Engine.DEEPSPEED,
        2,
        2,
    )
    every_cut_is_noticed(output_dir, "checkpoint-2", "checkpoint-1", tmp_path)

    for path in output_dir.glob("checkpoint-8/**/*rank_1*"):
        path.unlink()
    lacking, *_ = save_folders.find_all(Saves(str(output_dir)), {2}, local=1)
    assert lacking.reason.endswith("isn't on node 0, as if every node saved to its own disk")
    assert not lacking.is_cut_off


def test_goes_on_at_another_stage_by_a_universal_checkpoint(stack: Stack, tmp_path: Path) -> None:
    """Stage 3 fails after step 5; stage 2 resumes with stage 3's optimizer state."""
    expected = reference(stack, LATE, *SINGLE, "--late=never")
    ours, told = launched(stack, tmp_path, *OURS, LATE, *TWO, *dummy(tmp_path))
    assert ours == pytest.approx(expected, rel=5e-5)
    assert TO_STAGE_2 in told
    assert "resumes from checkpoint-4 (5 steps had been done), as a universal checkpoint" in flat(
        told
    )
    output_dir = tmp_path / "out"
    found = save_folders.find_all(Saves(str(output_dir)), {2})
    assert [(one.step, one.zero_stage) for one in found] == [
        (8, 2),
        (6, 2),
        (4, 3),
        (2, 3),
    ]
    assert not list(output_dir.glob("*universal*"))
    every_cut_is_noticed(output_dir, "checkpoint-4", "checkpoint-2", tmp_path)


def test_progress_is_not_thrown_away_unless_allowed(tmp_path: Path) -> None:
    """DeepSpeed can't load this checkpoint at the new stage: a fresh start is only suggested."""
    expected = reference(CURRENT, LATE, *SINGLE, "--late=never")
    own = (LATE, *TWO, *dummy(tmp_path), "--buffer=True")
    done = CURRENT.run(*OURS, *own, cwd=tmp_path)
    assert done.returncode == 1
    assert attempts(done.stderr) == 1
    told = flat(done.stderr)
    assert "not relaunched: cannot resume from checkpoint-4:" in told
    assert "there are: seen" in told
    assert (tmp_path / "out" / "checkpoint-4").is_dir()

    shutil.rmtree(tmp_path / "out")
    ours, told = launched(CURRENT, tmp_path, *OURS, "--allow-restart", *own)
    assert ours == pytest.approx(expected, rel=5e-5)
    assert "from the start, after 5 steps" in flat(told)
    assert (tmp_path / "out" / "set-aside-1" / "checkpoint-4").is_dir()


def test_every_cut_of_adapters_under_ddp_is_noticed(tmp_path: Path) -> None:
    """Files of peft and the Trainer without DeepSpeed."""
    own = ("--use_lora=True", *TWO, "--max_steps=2", "--save_steps=1")
    ended = warm(CURRENT).run(Training(str(SCENARIOS / "hf_lora.py"), own, 2, str(tmp_path)))
    assert ended.completed == [0, 1], ended.outputs
    (newest, _) = save_folders.find_all(Saves(str(tmp_path / "out")), {2})
    assert (newest.step, newest.engine, newest.world) == (2, Engine.DDP, 2)
    every_cut_is_noticed(tmp_path / "out", "checkpoint-2", "checkpoint-1", tmp_path)


WEATHER = f"""
import os, sys
sys.path.insert(0, {str(SCENARIOS)!r})
import hf_late

class Weather(hf_late.Clock):
    def on_step_begin(self, args, state, control, **kwargs):
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and state.global_step == 5:
            raise ConnectionError("the weather is bad")

hf_late.Clock = Weather
hf_late.main()
"""


def test_a_restart_that_was_asked_for_goes_on(tmp_path: Path) -> None:
    """--max-restarts: an unknown failure restarts from the newest checkpoint, unchanged."""
    expected = reference(CURRENT, LATE, *SINGLE, "--late=never")
    (tmp_path / "weather.py").write_text(WEATHER)
    own = (*TWO, "--late=never", "--save_steps=2", "--output_dir=out", "--loss_file=losses.json")
    done = CURRENT.run(*OURS, "--max-restarts=1", "weather.py", *own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--max-restarts 1: restarting with the same plan, 1 of 1" in flat(done.stderr)
    assert "checkpoint-4" in flat(done.stderr)
    assert attempts(done.stderr) == 2
    losses = json.loads((tmp_path / "losses.json").read_text())
    assert losses == pytest.approx(expected, rel=1e-4)


APART = (
    """
import os
import sys

sys.argv.append(f"--output_dir=out/{os.getpid()}")
"""
    + WEATHER
)


def test_a_restart_finds_the_parts_of_ranks_that_save_apart(tmp_path: Path) -> None:
    """A folder name with a time or random number differs by rank and launch."""
    expected = reference(CURRENT, LATE, *SINGLE, "--late=never")
    (tmp_path / "weather.py").write_text(APART)
    own = (*TWO, "--late=never", "--save_steps=2", "--loss_file=losses.json")
    done = CURRENT.run(*OURS, "--max-restarts=1", "weather.py", *own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the ranks save to different folders: rank 0 to" in flat(done.stderr)
    assert "resumes from checkpoint-4" in flat(done.stderr)
    losses = json.loads((tmp_path / "losses.json").read_text())
    assert losses == pytest.approx(expected, rel=1e-4)
