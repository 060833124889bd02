"""What is stated or done twice in silence is told before the first step, in real loops."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import CURRENT, SCENARIOS

TOLD = "safe-launch explain wrong-loss"


@pytest.mark.parametrize(
    ("loop", "kinds"),
    [
        ("accelerate", ("divided among the ranks twice", "divided by the accumulation of 2")),
        ("deepspeed", ("divided by the accumulation of 2",)),
        ("ddp", ("trains on the same samples",)),
    ],
)
def test_twice_or_never(loop: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Each once; the loop beside it that does it right is told of nothing."""
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
