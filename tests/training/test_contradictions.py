"""Settings silently stated or applied twice are reported before the first step, in real loops."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import CURRENT, SCENARIOS

TOLD = "safe-launch explain wrong-loss"


def trained(printed: str) -> list[float]:
    """The final parameters and each step's rates."""
    (line,) = [line for line in printed.splitlines() if "trained " in line]
    return [float(word) for word in line.partition("trained ")[2].split()]


@pytest.mark.parametrize(
    ("loop", "kinds"),
    [
        ("accelerate", ("divided among the ranks twice", "divided by the accumulation of 2")),
        ("deepspeed", ("divided by the accumulation of 2",)),
        ("ddp", ("trains on the same samples",)),
        ("epochs", ("orders the samples as in the last epoch",)),
        ("schedule", ("a schedule of 32 steps was over after 16",)),
    ],
)
def test_twice_or_never(loop: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    """One line each; the advised loop has none and trains like a single process."""
    script = (SCENARIOS / "twice_or_never.py", loop)
    launch = ("safe-launch", "--nproc=2", "--log-dir=runs", *script)
    done = CURRENT.run(*launch, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stderr.splitlines() if TOLD in line]
    assert len(lines) == len(kinds)
    assert all(any(kind in line for line in lines) for kind in kinds)
    right = CURRENT.run(*launch, "--right", cwd=tmp_path)
    assert right.returncode == 0, right.stderr[-4000:]
    assert TOLD not in right.stderr
    if loop == "epochs":  # a single process has another order
        assert trained(done.stdout) != pytest.approx(trained(right.stdout), rel=1e-2)
        return
    alone = CURRENT.run(*launch[:1], "--nproc=1", *launch[2:], "--right", "--batch=8", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr[-4000:]
    assert trained(right.stdout) == pytest.approx(trained(alone.stdout), rel=1e-5)
    assert trained(done.stdout) != pytest.approx(trained(alone.stdout), rel=1e-2)


@pytest.mark.parametrize(
    ("loop", "kind", "times"),
    [
        ("deepspeed", "2 times too small", 2),
        ("steps", "2 times too small", 2),
        ("trainer", "gradients are 2 times", 0.5),
    ],
)
def test_as_many_times(loop: str, kind: str, times: float, tmp_path: Path) -> None:
    """With a compensating rate, plain steps are right; the twin gets no line."""
    script = (SCENARIOS / "twice_or_never.py", loop)
    launch = ("safe-launch", "--nproc=2", "--log-dir=runs", *script)
    done = CURRENT.run(*launch, f"--rate={0.1 * times}", cwd=tmp_path)
    right = CURRENT.run(*launch, "--right", cwd=tmp_path)
    for run in (done, right):
        assert run.returncode == 0, run.stderr[-4000:]
    assert kind in " ".join(done.stderr.split())
    assert trained(done.stdout) == pytest.approx(trained(right.stdout), rel=1e-5)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("rate", "learning_rate 0.3 has no effect"),
        ("smoothing", "label_smoothing_factor 0.3 has no effect"),
        ("optimizer", "the passed optimizer SGD"),
        ("clipping", "clips nothing"),
    ],
)
def test_no_effect(setting: str, kind: str, tmp_path: Path) -> None:
    """It trains as without the reported setting, which gets one line."""
    launch = ("safe-launch", "--nproc=2", "--log-dir=runs", SCENARIOS / "no_effect.py", setting)
    done, right = (CURRENT.run(*launch, *more, cwd=tmp_path) for more in ((), ("--right",)))
    for run in (done, right):
        assert run.returncode == 0, run.stderr[-4000:]
    assert len([line for line in done.stderr.splitlines() if kind in line]) == 1
    assert "no effect" not in right.stderr
    assert "clips nothing" not in right.stderr
    assert trained(done.stdout) == pytest.approx(trained(right.stdout), rel=1e-6)
