"""Which tests run again after one line changed, in each folder and beside the code."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import passed
from support.grounds import Grounds
from support.stacks import CURRENT, OLDER, ROOT

COPIED = ("benchmarks", "examples", "hardware", "launcher", "presets", "scripts")
COPIED += ("tests/reproductions", "tests/scenarios", "tests/standins", "tests/support")
COPIED += ("tests/programs", "tests/training", "tests/processes", "docs/design")
REPRODUCED, PLANNED, FIXED = "a reproduction", "a launch", "a launch that types `fix`"
OTHER, SLOW = "another reproduction", "a slow launch"
ALL = {REPRODUCED, OTHER, PLANNED, FIXED, SLOW}
LAUNCHES = {PLANNED, FIXED, SLOW}
CHANGED: dict[str, set[str]] = {
    "launcher/catalogue/search.py": LAUNCHES,
    "launcher/checkpoints/resume_point.py": LAUNCHES,
    "launcher/checks/finding.py": ALL,
    "launcher/commands/training.py": LAUNCHES,
    "launcher/commands/config_patch.py": {FIXED, SLOW},
    "launcher/commands/cluster_files.py": {SLOW},
    "launcher/core/preset.py": ALL,
    "launcher/diagnosis/root_cause.py": LAUNCHES,
    "launcher/evidence/from_exception.py": ALL,
    "launcher/frameworks/registry.py": LAUNCHES,
    "launcher/guards/checkpointing.py": ALL,
    "launcher/hangs/attribution.py": LAUNCHES,
    "launcher/logs/last_output.py": LAUNCHES,
    "launcher/logs/report.py": {SLOW},
    "launcher/machine/detect.py": LAUNCHES,
    "launcher/nodes/rendezvous.py": LAUNCHES,
    "launcher/options/table.py": LAUNCHES,
    "launcher/planning/search.py": LAUNCHES,
    "launcher/progress/board.py": ALL,
    "launcher/report/explain_plan.py": LAUNCHES,
    "launcher/report/page/document.py": {SLOW},
    "launcher/schedulers/slurm.py": LAUNCHES,
    "launcher/session/loop.py": LAUNCHES,
    "launcher/system/redaction.py": ALL,
    "launcher/worker.py": ALL,
    "launcher/workers/supervisor.py": LAUNCHES,
    "launcher/workload/read_workload.py": LAUNCHES,
    "hardware/accelerators/nvidia/a100-40gb.yaml": LAUNCHES,
    "presets/zero2.yaml": LAUNCHES,
    "presets/failures/zero2-gradient-reduced-twice.md": LAUNCHES,
    "presets/failures/dataset-empty.md": set(),
    "presets/failures.json": set(),  # derived from the entries
    "examples/finetune.py": LAUNCHES,
    "scripts/environment": ALL,
    "scripts/fuzz": set(),
    "tests/conftest.py": ALL,
    "tests/reproductions/dataset-empty.py": {REPRODUCED},
    "tests/scenarios/toy.py": LAUNCHES,
    "tests/support/warm_python.py": ALL - {SLOW},
    "tests/support/logs.py": set(),
    "tests/support/pages/catalogue.py": set(),
    "tests/training/test_five_failures.py": {FIXED},
    "tests/processes/test_option_effects.py": {SLOW},
    "docs/design/architecture.md": set(),
}
"""The trainings that depend on a file."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout to change."""
    root = tmp_path_factory.mktemp("checkout")
    without = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=without)
    shutil.copy(ROOT / "tests/conftest.py", root / "tests")
    yield root
    shutil.rmtree(root)


def digests(root: Path) -> dict[str, str]:
    """The digests of some trainings."""
    grounds = Grounds(root)
    return {
        REPRODUCED: grounds.of_reproduction("tests/reproductions/dataset-empty.py", CURRENT),
        OTHER: grounds.of_reproduction("tests/reproductions/loss-not-returned.py", CURRENT),
        PLANNED: grounds.of_launch("tests/training/test_corrected_losses.py"),
        FIXED: grounds.of_launch("tests/training/test_five_failures.py"),
        SLOW: grounds.of_all("tests/processes/test_option_effects.py"),
    }


def test_a_line_changed_anywhere(copy: Path) -> None:
    """Exactly the dependent trainings run again."""
    before = digests(copy)
    found = {}
    for name in CHANGED:
        path = copy / name
        text = path.read_text()
        path.write_text(f"{text}\nADDED = 1\n")
        after = digests(copy)
        found[name] = {one for one in before if before[one] != after[one]}
        path.write_text(text)
    assert found == CHANGED
    assert digests(copy) == before


@pytest.mark.parametrize("name", ["launcher/worker.py", "tests/training/test_five_failures.py"])
def test_words_run_nothing_again(copy: Path, name: str) -> None:
    """Docstrings and comments of code and tests change no training; other lines may."""
    before = digests(copy)
    path = copy / name
    text = path.read_text()
    path.write_text(f'"""Another docstring."""\n# And a comment.\n{text}\n"""And a last word."""\n')
    assert digests(copy) == before
    path.write_text(f'{text}\nPRINTED = "a word"\n')
    after = digests(copy)
    assert {one for one in before if before[one] != after[one]} == CHANGED[name]
    path.write_text(text)


def test_every_room_is_shown() -> None:
    """A new folder of the launcher needs a line above."""
    rooms = {path.parent.name for path in (ROOT / "launcher").glob("*/__init__.py")}
    assert rooms == {name.split("/")[1] for name in CHANGED if name.count("/") > 1} & rooms


def test_versions_count() -> None:
    """Other package versions change the digest."""
    grounds = Grounds()
    script = "tests/reproductions/dataset-empty.py"
    assert grounds.of_reproduction(script, CURRENT) != grounds.of_reproduction(script, OLDER)


def test_why_a_training_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """New, changed, requested, or drawn: one in ten, one in six after code changes."""
    monkeypatch.delenv(passed.VARIABLE, raising=False)
    assert passed.reason("test", "", "own:1 code:2") == "never passed before"
    assert passed.reason("test", "own:1 code:2", "own:2 code:2") == "changed: own"
    assert passed.reason("test", "own:1 code:2", "own:2 code:3") == "changed: own, code"
    names = [f"test {number}" for number in range(1000)]
    coded = [passed.reason(name, "own:1 code:2", "own:1 code:3") for name in names]
    assert set(coded) == {"", "changed: code"}
    assert 110 < coded.count("changed: code") < 230
    coded = [passed.reason(name, "own:1 code:2", "own:1 code:3", 2) for name in names]
    assert 400 < coded.count("changed: code") < 600
    outside = [passed.reason(name, "code:2 worker:1", "code:3 worker:1") for name in names]
    assert 20 < outside.count("changed: code") < 70
    inside = [passed.reason(name, "code:2 worker:1", "code:3 worker:2", 1) for name in names]
    assert set(inside) == {"changed: code, worker"}
    drawn = [passed.reason(name, "own:1", "own:1") for name in names]
    assert set(drawn) == {"", passed.DRAWN}
    assert 50 < drawn.count(passed.DRAWN) < 150
    monkeypatch.setenv(passed.VARIABLE, "asked for")
    assert passed.reason("test", "own:1", "own:1") == "asked for"


def test_a_run_takes_what_it_has_time_for() -> None:
    """New and changed ones are chosen before those that only the launcher's code has changed."""
    names = {f"tests/training/{number}.py::test": passed.CODE for number in range(100)}
    names["tests/training/new.py::test"] = passed.NEW
    names["tests/training/own.py::test"] = "changed: own, code"
    seconds = {name.partition("::")[0]: passed.WORKER_SECONDS / 10 for name in names}
    run = passed.affordable(names, seconds)
    assert len(run) == 10
    assert {"tests/training/new.py::test", "tests/training/own.py::test"} < run
    assert passed.affordable(names, {}) == set(names)
