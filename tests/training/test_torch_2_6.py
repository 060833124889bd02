"""A sample on torch 2.6, which is still common; its store and checkpointing differ.

Each of the five failures once, plain runs with both ways to start workers, and an exit code.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import SCENARIOS, TORCH_2_6, Stack
from support.trainings import (
    BARE_ASSERTION,
    CASES,
    TO_OTHER,
    Case,
    dies_plainly,
    loop_case,
    trains_corrected,
)

pytestmark = pytest.mark.parametrize("stack", [TORCH_2_6], ids=[TORCH_2_6.name], indirect=True)
SAMPLE = (
    "block twice under ZeRO-2",
    "LoRA under ZeRO-3",
    "LoRA under DDP",
    "dummy loss under ZeRO-3",
)
TWICE_UNDER_ZERO_3 = loop_case(
    "block twice under ZeRO-3",
    "ds_block_twice.py",
    ("--deepspeed_config", str(SCENARIOS / "raw3.json")),
    BARE_ASSERTION,
    TO_OTHER,
    "zero3-parameter-reduced-twice",
)
MEETS = """
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(torch.__version__.partition("+")[0], total.item())
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "case",
    [*(one for one in CASES if one.name in SAMPLE), TWICE_UNDER_ZERO_3],
    ids=lambda case: case.id,
)
def test_dies_plainly_and_trains_corrected(stack: Stack, case: Case, tmp_path: Path) -> None:
    """The same holds on the other stacks."""
    dies_plainly(stack, case, tmp_path)
    trains_corrected(stack, case, tmp_path)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_meet(stack: Stack, method: str, tmp_path: Path) -> None:
    """The launcher hosts their store."""
    (tmp_path / "meets.py").write_text(MEETS)
    options = (f"--start-method={method}", "--nproc=2", "--log-dir=runs")
    done = stack.run("safe-launch", *options, "meets.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2.6.0 2.0"] * 2
    assert "Error" not in done.stderr


def test_the_workers_own_exit_code(stack: Stack, tmp_path: Path) -> None:
    """One of two ranks exits while the other waits for it."""
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", SCENARIOS / "dies_alone.py", "--silently")
    done = stack.run(*run, cwd=tmp_path)
    assert done.returncode == 7
    assert "attempt 1: failed: rank 1 " in done.stderr
