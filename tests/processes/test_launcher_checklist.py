"""Each of torch's own launcher tests behaves the same under ours, or differs by design."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.launcher_checklist import CASES, Case, page, run
from support.stacks import ROOT


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_as_torchrun_does(tmp_path: Path, case: Case) -> None:
    """Both run; a stated difference must exist."""
    theirs = run(case, "torchrun", tmp_path / "theirs")
    ours = run(case, "warm", tmp_path / "ours")
    assert (ours != theirs) == bool(case.differs), f"torchrun: {theirs}\nsafe-launch: {ours}"


def test_the_page_has_every_case() -> None:
    """docs/measured/launcher-checklist.md lists the current cases."""
    text = (ROOT / "docs" / "measured" / "launcher-checklist.md").read_text()
    for case in CASES:
        assert f"\n| {case.name} | " in text, "run scripts/launcher-checklist"
    assert text.startswith(page({}).partition("\n| case")[0])
