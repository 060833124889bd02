"""After a failure in mid-training the run goes on from its newest whole checkpoint, for real."""

from __future__ import annotations

from pathlib import Path

import pytest
from stacks import CURRENT, EXAMPLES, SCENARIOS, Stack
from test_frameworks import REENTRANT, TO_OTHER, TO_STAGE_2, TRAINER, attempts, launched, reference

pytestmark = pytest.mark.frameworks

LATE = SCENARIOS / "hf_late.py"
COMMON = [one for one in TRAINER if not one.startswith(("--max_steps", "--save_strategy"))]
COMMON += ["--max_steps=8", "--weight_decay=0.1"]
SINGLE = (*COMMON, "--save_strategy=no", "--per_device_train_batch_size=8")
OURS = ("safe-launch", "--nproc=2", "--log-dir=runs")
TWO = (*COMMON, "--save_strategy=steps", "--per_device_train_batch_size=4")
TWICE = (f"--deepspeed={EXAMPLES / 'zero2.json'}", *REENTRANT)
DUMMY = (f"--deepspeed={SCENARIOS / 'zero3.json'}", "--late=dummy")


def flat(told: str) -> str:
    """What the launcher said, in one line."""
    return " ".join(told.replace("[safe-launch]", "").split())


def test_goes_on_with_the_same_losses_at_the_same_stage(stack: Stack, tmp_path: Path) -> None:
    """Step 5 fails under ZeRO-2; corrected it goes on after step 4 as if nothing had happened."""
    expected = reference(stack, LATE, *SINGLE)
    ours, told = launched(stack, tmp_path, *OURS, LATE, *TWO, *TWICE, "--save_steps=2")
    assert ours == pytest.approx(expected, rel=1e-4)
    assert TO_OTHER in told
    assert attempts(told) == 2
    assert "goes on from checkpoint-4 (5 steps had been done)" in flat(told)


def test_goes_on_at_another_stage_by_a_universal_checkpoint(stack: Stack, tmp_path: Path) -> None:
    """Stage 3 fails after step 5; stage 2 goes on with the optimizer's state of stage 3."""
    expected = reference(stack, LATE, *SINGLE, "--late=never")
    ours, told = launched(stack, tmp_path, *OURS, LATE, *TWO, *DUMMY, "--save_steps=2")
    assert ours == pytest.approx(expected, rel=1e-4)
    assert TO_STAGE_2 in told
    assert "goes on from checkpoint-4 (5 steps had been done), as a universal checkpoint" in flat(
        told
    )
    assert (tmp_path / "out" / "universal-4").is_dir()


def test_what_is_cut_off_is_not_taken(tmp_path: Path) -> None:
    """The newest checkpoint is cut off: the one before it is taken, and the newest kept aside."""
    expected = reference(CURRENT, LATE, *SINGLE)
    cut = "--cut_off=checkpoint-5/global_step5/*optim_states.pt"
    ours, told = launched(CURRENT, tmp_path, *OURS, LATE, *TWO, *TWICE, "--save_steps=1", cut)
    assert ours == pytest.approx(expected, rel=1e-4)
    assert "goes on from checkpoint-4 (5 steps had been done); checkpoint-5 isn't taken:" in flat(
        told
    )
    assert (tmp_path / "out" / "set-aside-1" / "checkpoint-5").is_dir()


def test_progress_is_not_thrown_away_unless_allowed(tmp_path: Path) -> None:
    """DeepSpeed can't load this model's checkpoint at the new stage: it is proposed, not done."""
    own = (LATE, *TWO, *DUMMY, "--buffer=True", "--save_steps=2")
    done = CURRENT.run(*OURS, *own, cwd=tmp_path)
    assert done.returncode == 1
    told = flat(done.stderr)
    assert "not relaunched: checkpoint-4 can't be gone on from:" in told
    assert "--allow-restart" in told
    assert attempts(done.stderr) == 1

    expected = reference(CURRENT, LATE, *SINGLE, "--late=never")
    again = tmp_path / "again"
    again.mkdir()
    ours, told = launched(CURRENT, again, *OURS, "--allow-restart", *own)
    assert ours == pytest.approx(expected, rel=1e-4)
    assert "from the start, after 5 steps" in flat(told)
    assert (again / "out" / "set-aside-1" / "checkpoint-4").is_dir()


def test_without_checkpoints_it_starts_anew_and_says_so(tmp_path: Path) -> None:
    """Nothing is saved, so nothing is lost."""
    expected = reference(CURRENT, LATE, *SINGLE)
    own = [one for one in TWO if not one.startswith("--save_strategy")]
    ours, told = launched(CURRENT, tmp_path, *OURS, LATE, *own, *TWICE, "--save_strategy=no")
    assert ours == pytest.approx(expected, rel=1e-4)
    assert "from the start, after 5 steps: this job has no checkpoint" in flat(told)
