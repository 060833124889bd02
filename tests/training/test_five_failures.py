"""The five original failures: each fails plainly, and trains corrected.

All on the current stack. It no longer has one of them, a parameter released before its
recomputation; the last DeepSpeed with that is installed beside the current one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.stacks import CURRENT, RELEASING, SCENARIOS
from support.trainings import (
    CASES,
    FIRST_FIVE,
    Case,
    attempts,
    dies_under_torchrun,
    launched,
    trains_at_once,
    trains_corrected,
    trains_smaller,
)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in FIRST_FIVE], ids=lambda case: case.id
)
def test_dies_plainly_and_trains_corrected(case: Case, tmp_path: Path) -> None:
    """Plainly it fails; corrected it has the reference's losses, with at most one relaunch.

    The second launch needs none.
    """
    stack = CURRENT if CURRENT.name in case.fails_on else RELEASING
    dies_under_torchrun(stack, case, tmp_path)
    kept = {"SAFE_LAUNCH_LESSONS": str(tmp_path / "lessons")}
    trains_corrected(stack, case, tmp_path, **kept)
    trains_at_once(stack, case, tmp_path, **kept)


def test_what_a_fix_writes_lasts(tmp_path: Path) -> None:
    """With the stage in its file, and the script's line changed by hand, no attempt fails."""
    for name in ("ds_dummy_loss.py", "toy.py", "raw3.json"):
        shutil.copy(SCENARIOS / name, tmp_path)
    run = (
        "safe-launch",
        "--nproc=2",
        "--log-dir=runs",
        "ds_dummy_loss.py",
        "--ds_config=raw3.json",
    )
    losses, told = launched(CURRENT, tmp_path, *run)
    assert "safe-launch fix runs/ds_dummy_loss-" in told
    fixed = CURRENT.run("safe-launch", "fix", "--log-dir=runs", "--apply", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stderr
    assert json.loads((tmp_path / "raw3.json").read_text())["zero_optimization"]["stage"] == 2
    assert "ds_dummy_loss.py:49: deepspeed.zero.Init(..., enabled=False)" in fixed.stderr
    script = tmp_path / "ds_dummy_loss.py"
    script.write_text(script.read_text().replace("zero.Init(", "zero.Init(enabled=False, "))
    again, told = launched(CURRENT, tmp_path, *run)
    assert "nothing is changed" in told
    assert (attempts(told), again) == (1, pytest.approx(losses, rel=1e-4))


def test_out_of_memory(tmp_path: Path) -> None:
    """The allocator refuses; a smaller plan trains to the same losses and is kept."""
    trains_smaller(CURRENT, tmp_path, SAFE_LAUNCH_LESSONS=str(tmp_path / "lessons"))
