"""What trains wrongly without an error is avoided before the first step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stacks import CURRENT, OLDER, SCENARIOS, Stack

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 4,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "zero_force_ds_cpu_optimizer": False,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
}


ONCE = {**CONFIG, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}}


def moved(
    stack: Stack,
    folder: Path,
    *options: str,
    name: str = "ds_offloaded.py",
    config: dict[str, object] = CONFIG,
) -> tuple[float, float, str]:
    """How far the weight moves in a step, how far it should, and what the launcher said."""
    (folder / "ds.json").write_text(json.dumps(config))
    script = (SCENARIOS / name, "--deepspeed_config=ds.json", "--told=told.json")
    done = stack.run("safe-launch", "--nproc=2", "--log-dir=runs", *options, *script, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    step, right = json.loads((folder / "told.json").read_text())
    return step, right, done.stderr


def test_offload_that_drops_micro_batches(tmp_path: Path) -> None:
    """In the older DeepSpeed the two in the middle are lost; the plan avoids it, by stage 1."""
    step, right, told = moved(OLDER, tmp_path, "--fix=suggest")
    assert step == pytest.approx((1 + 1000) / 4)
    assert "zero-offload-drops-micro-batches" in told
    step, right, told = moved(OLDER, tmp_path)
    assert "zero_stage: 2 -> 1" in told
    assert "attempt 2" not in told
    assert step == pytest.approx(right)


def test_a_version_that_counts_them_is_left_alone(tmp_path: Path) -> None:
    """Nothing is changed."""
    step, right, told = moved(CURRENT, tmp_path)
    assert "nothing is changed" in told
    assert step == pytest.approx(right)


def test_passes_that_are_overwritten_are_named(tmp_path: Path) -> None:
    """Only the last of three counts at stage 1: the line is told, the run isn't changed."""
    step, _, told = moved(CURRENT, tmp_path, name="ds_several_passes.py", config=ONCE)
    assert step == pytest.approx(16.0)
    assert "deepspeed-zero-last-backward" in told
    assert "engine.backward(engine(torch.full((8,), gradient)))" in told


def test_an_engine_that_knows_the_last_pass_adds_them_up(tmp_path: Path) -> None:
    """Nothing is told."""
    step, right, told = moved(CURRENT, tmp_path, name="ds_several_passes_told.py", config=ONCE)
    assert step == pytest.approx(right)
    assert "backward" not in told
