"""scripts/plan-diff: a stricter catalogue changes exactly the affected plans."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from safe_launch.catalogue.reader import read_catalogue
from support.plan_matrix import MATRIX, Case, differences, table
from support.stacks import CURRENT, ROOT

CATALOGUE = read_catalogue()
FORBIDS = """\
---
id: more
title: nobody checkpoints reentrantly under ZeRO-1
role: initiating
class: silent
when: {deepspeed: ">=0.19"}
forbids:
  - {engine: deepspeed, zero_stage: 1, gradient_checkpointing: reentrant}
proof: [reported]
---
## What happens

It is forbidden.

## What to do

Something else.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the catalogue with one more constraint."""
    result = tmp_path / "failures"
    shutil.copytree(ROOT / "presets" / "failures", result)
    (result / "more.md").write_text(FORBIDS)
    return result


def test_no_change_no_difference() -> None:
    """An equal catalogue gives equal plans."""
    assert differences(CATALOGUE, CATALOGUE) == []


def test_one_entry_more_changes_what_it_forbids(folder: Path) -> None:
    """Only its stage and versions change; the cause is named."""
    matrix = yaml.safe_load(MATRIX.read_text())
    names = ("full, ZeRO-1", "LoRA, DDP, reentrant")
    matrix["workloads"] = {name: matrix["workloads"][name] for name in names}
    found = differences(CATALOGUE, read_catalogue(folder), matrix)
    cases = {one.case for one in found if "more" in one.after}
    assert Case("full, ZeRO-1", "current", "dgx-h100") in cases
    assert {one.workload for one in cases} == {"full, ZeRO-1"}
    assert {one.stack for one in cases} == {"current"}
    one = next(one for one in found if one.case.node == "dgx-h200")
    assert ", reentrant checkpointing" in one.before
    assert ", non-reentrant checkpointing" in one.after
    told = table(found)
    assert "full, ZeRO-1\n  on " in told
    assert "dgx-h200" in told


def test_the_script_compares_with_a_commit(tmp_path: Path) -> None:
    """An empty catalogue changes plans against a commit; an invalid commit is an error."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    (tmp_path / "empty").mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "scripts" / "plan-diff"), *arguments]
        return subprocess.run(
            command, env=CURRENT.environment(), capture_output=True, text=True, check=False
        )

    name = "LoRA, DDP, reentrant, unused parameters are looked for"
    done = run("HEAD", f"--catalogue={tmp_path / 'empty'}", f"--workload={name}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name}\n")
    assert "differ from HEAD" in done.stdout
    wrong = run("no-such-commit")
    assert wrong.returncode == 1
    assert "no-such-commit" in wrong.stderr
