"""Settings that silently train wrongly are avoided before the first step."""

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
    """How far the weight moves in a step, how far it should, and the launcher's output."""
    (folder / "ds.json").write_text(json.dumps(config))
    script = (SCENARIOS / name, "--deepspeed_config=ds.json", "--told=told.json")
    done = stack.run("safe-launch", "--nproc=2", "--log-dir=runs", *options, *script, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    step, right = json.loads((folder / "told.json").read_text())
    return step, right, done.stderr


def test_offload_that_drops_micro_batches(tmp_path: Path) -> None:
    """The older DeepSpeed loses the middle two; the plan avoids it by stage 1."""
    step, right, told = moved(OLDER, tmp_path, "--fix=suggest")
    assert step == pytest.approx((1 + 1000) / 4)
    assert "zero-offload-drops-micro-batches" in told
    step, right, told = moved(OLDER, tmp_path)
    assert "zero_stage: 2 -> 1" in told
    assert "attempt 2" not in told
    assert step == pytest.approx(right)


def test_a_version_that_counts_them_is_left_alone(tmp_path: Path) -> None:
    """No setting is changed."""
    step, right, told = moved(CURRENT, tmp_path)
    assert "nothing is changed" in told
    assert step == pytest.approx(right)


def test_passes_that_are_overwritten(tmp_path: Path) -> None:
    """At stage 1 only the last of three counts: the line is named, and stage 0 adds them up."""
    step, right, told = moved(
        CURRENT, tmp_path, "--fix=suggest", name="ds_several_passes.py", config=ONCE
    )
    assert step == pytest.approx(16.0)
    assert "deepspeed-zero-last-backward" in told
    assert "engine.backward(engine(torch.full((8,), gradient)))" in told
    step, right, told = moved(CURRENT, tmp_path, name="ds_several_passes.py", config=ONCE)
    assert "zero_stage: 1 -> 0" in told
    assert step == pytest.approx(right)


def test_an_engine_that_knows_the_last_pass_adds_them_up(tmp_path: Path) -> None:
    """There is no message."""
    step, right, told = moved(CURRENT, tmp_path, name="ds_several_passes_told.py", config=ONCE)
    assert step == pytest.approx(right)
    assert "backward" not in told


def rates(stack: Stack, folder: Path, scheduler: dict[str, object]) -> tuple[object, str]:
    """The rates of two groups in each step of a DeepSpeed schedule, and the output."""
    config = {**ONCE, "scheduler": scheduler}
    (folder / "ds.json").write_text(json.dumps(config))
    script = (SCENARIOS / "ds_rates.py", "--deepspeed_config=ds.json", "--told=told.json")
    done = stack.run("safe-launch", "--nproc=2", "--log-dir=runs", *script, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    (seen,) = (folder / "runs").glob("*/attempt-1/observed.json")
    assert json.loads(seen.read_text())["observed"]["rates_differ"] is True
    return json.loads((folder / "told.json").read_text()), done.stderr


WARMUP = {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}
CYCLE = {"cycle_min_lr": 0.001, "cycle_max_lr": 0.009, "cycle_first_step_size": 8}
STAIRS = {"type": "OneCycle", "params": {**CYCLE, "cycle_first_stair_count": 2}}


@pytest.mark.parametrize(
    ("stack", "last", "is_told"), [(OLDER, [0.001, 0.001], True), (CURRENT, [0.1, 0.2], False)]
)
def test_a_warmup_that_ends_at_a_rate_of_its_own(
    stack: Stack, last: list[float], is_told: bool, tmp_path: Path
) -> None:
    """The older DeepSpeed ends at 0.001, the newer at each group's rate."""
    steps, told = rates(stack, tmp_path, WARMUP)
    assert isinstance(steps, list)
    assert steps[-1] == last
    assert ("deepspeed-warmup-ends-elsewhere" in told) is is_told
    assert "deepspeed-warmup-one-rate-for-all" not in told


@pytest.mark.parametrize(("stack", "different"), [(OLDER, 8), (CURRENT, 3)])
def test_stairs_that_arent_made(stack: Stack, different: int, tmp_path: Path) -> None:
    """Eight steps have eight rates in the older DeepSpeed, and three with two stairs."""
    steps, told = rates(stack, tmp_path, STAIRS)
    assert isinstance(steps, list)
    assert len({rate for rate, _ in steps}) == different
    assert ("deepspeed-one-cycle-without-stairs" in told) is (different == 8)


@pytest.mark.parametrize(("stack", "is_wrong"), [(OLDER, True), (CURRENT, False)])
def test_an_epoch_that_resumes_in_the_order_of_the_first(
    stack: Stack, is_wrong: bool, tmp_path: Path
) -> None:
    """After six of eight steps on two ranks, the remaining ones are the first epoch's."""
    script = (SCENARIOS / "hf_resumed.py", "--told=told.json")
    for options in ((), ("--resume",)):
        done = stack.run(
            "safe-launch", "--nproc=2", "--log-dir=runs", *script, *options, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr[-4000:]
        order = json.loads((tmp_path / "told.json").read_text())
        if not options:
            assert "trainer-resumes" not in done.stderr
            first, second = order[:4], order[4:]
    assert (order == first[2:]) is is_wrong, (first, second, order)
    assert ("trainer-resumes-in-first-epochs-order" in done.stderr) is is_wrong


def test_an_evaluation_first_leaves_the_model_without_ddp(tmp_path: Path) -> None:
    """The ranks' weights drift apart; as the entry advises, they end as without an evaluation."""
    ends = {}
    for options in ((), ("--first",), ("--first", "--unmarked")):
        script = (SCENARIOS / "hf_evaluated.py", "--told=told.json", *options)
        done = CURRENT.run("safe-launch", "--nproc=2", "--log-dir=runs", *script, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        ends[options] = json.loads((tmp_path / "told.json").read_text())
        is_wrong = options == ("--first",)
        assert (len({*ends[options]}) > 1) is is_wrong
        assert ("trainer-evaluated-before-training" in done.stderr) is is_wrong
    assert ends["--first", "--unmarked"] == ends[()]
