"""The five failures that safe-launch began with: each dies plainly, and trains corrected.

All on the current stack. It no longer has one of them, a parameter that is released before it is
recomputed; the last DeepSpeed that does is installed beside the current one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import CURRENT, RELEASING
from support.trainings import (
    CASES,
    FIRST_FIVE,
    Case,
    dies_under_torchrun,
    trains_at_once,
    trains_corrected,
    trains_smaller,
)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in FIRST_FIVE], ids=lambda case: case.id
)
def test_dies_plainly_and_trains_corrected(case: Case, tmp_path: Path) -> None:
    """Plainly it dies; corrected it trains with the reference's losses, one relaunch at most.

    The second launch needs none.
    """
    stack = CURRENT if CURRENT.name in case.fails_on else RELEASING
    dies_under_torchrun(stack, case, tmp_path)
    kept = {"SAFE_LAUNCH_LESSONS": str(tmp_path / "lessons")}
    trains_corrected(stack, case, tmp_path, **kept)
    trains_at_once(stack, case, tmp_path, **kept)


def test_out_of_memory(tmp_path: Path) -> None:
    """The allocator refuses; a smaller plan is computed, trains to the same losses, and is kept."""
    trains_smaller(CURRENT, tmp_path, SAFE_LAUNCH_LESSONS=str(tmp_path / "lessons"))
