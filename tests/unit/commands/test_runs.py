"""`safe-launch runs`: lists kept runs and prunes those beyond the limits."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from safe_launch.commands import registry, run_search
from safe_launch.core.errors import LaunchError
from safe_launch.system import kept_runs
from safe_launch.system.kept_runs import LauncherRecord, Limits, recorded, records

CHANGE = {"setting": "zero_stage", "old": 3, "new": 2}
HOUR, DAY = 3600.0, 86_400.0
STAMP = "-20261126-101010-0a0b0c"
"""The suffix of a run's name."""


@pytest.fixture(autouse=True)
def nothing_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides this host's other runs."""
    monkeypatch.setattr(run_search, "running_here", lambda: iter(()))


def kept(root: Path, name: str, age: float = HOUR, **outcome: object) -> Path:
    """A run directory last written to this many seconds ago."""
    run = root / f"{name}{STAMP}"
    (run / "attempt-1").mkdir(parents=True)
    (run / "request.json").write_text("{}")
    (run / "attempt-1/plan.json").write_text(json.dumps({"changes": [CHANGE]}))
    (run / "attempt-1/rank-0.log").write_bytes(b"x" * 8192)
    with recorded(run, 0, "train.py"):
        pass
    if outcome:
        (run / "outcome.json").write_text(json.dumps(outcome))
    return aged(run, age)


def aged(run: Path, age: float) -> Path:
    """The same with its files' times."""
    then = time.time() - age
    for path in (*run.rglob("*"), run):
        os.utime(path, (then, then))
    return run


def still_running(root: Path, name: str, **changes: object) -> Path:
    """A run directory with this process as its launcher."""
    run = kept(root, name)
    (found,) = records(run)
    assert isinstance(found, LauncherRecord)
    (run / "launcher-0.json").write_bytes(
        msgspec.json.encode(replace(found, ended=None, **changes))  # type: ignore[arg-type]
    )
    return aged(run, HOUR)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The command's output."""
    assert registry.run(["runs", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Latest first, in any state; other folders aren't listed."""
    kept(tmp_path, "old-1", 3 * HOUR, exit_code=0, attempts=1)
    kept(tmp_path, "new-1", HOUR / 2, exit_code=64, attempts=1)
    still_running(tmp_path, "now-1")
    (broken := tmp_path / "broken-1").mkdir()
    (broken / "request.json").write_text("{")
    (broken / "outcome.json").write_text("[1]")
    aged(broken, 2 * HOUR)
    (tmp_path / "notes").mkdir()
    lines = told(capsys, "--log-dir", tmp_path).splitlines()
    assert lines[0].split() == ["begun", "took", "attempts", "ended", "run", "changed"]
    names = [
        word.removesuffix(STAMP)
        for line in lines
        for word in line.split()
        if re.match(r"\w+-1\b", word)
    ]
    assert names == ["new-1", "now-1", "broken-1", "old-1"]
    assert "64: the command line" in lines[1]
    assert " runs " in lines[2]
    assert "cut off" in lines[3]
    assert lines[4].endswith("zero_stage: 3 -> 2")
    document = json.loads(told(capsys, "list", "ol", "--json", "--log-dir", tmp_path))
    assert [run["changes"] for run in document["runs"]] == [["zero_stage: 3 -> 2"]]
    assert "no run is kept in" in told(capsys, "--log-dir", tmp_path / "gone")


def test_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The changes are shown with the way to make them permanent."""
    run = kept(tmp_path, "train-1", exit_code=0, attempts=1, lasting=[{"place": "p", "text": "t"}])
    text = told(capsys, "show", "--log-dir", tmp_path, "train")
    assert "  changed zero_stage: 3 -> 2\n" in text
    assert f"safe-launch fix {run}\n" in text
    assert json.loads(told(capsys, "show", run, "--json"))["changes"] == ["zero_stage: 3 -> 2"]
    with pytest.raises(LaunchError, match="show which run"):
        registry.run(["runs", "show"])


def test_prune(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ended runs beyond the limits are removed; a dry run removes none."""
    for number in range(5):
        kept(tmp_path, f"train-{number}", (number + 1) * DAY, exit_code=0, attempts=1)
    now = still_running(tmp_path, "now-1")
    limits = ("prune", "--log-dir", tmp_path, "--keep", 1, "--days", 30)
    assert "5 runs would be removed" in told(capsys, *limits, "--dry-run")
    assert len([*tmp_path.iterdir()]) == 6
    assert "3 runs removed" in told(capsys, "prune", "--log-dir", tmp_path, "--days", 2.5)
    left = {path.name.removesuffix(STAMP) for path in tmp_path.iterdir()}
    assert left == {"train-0", "train-1", "now-1"}
    document = json.loads(told(capsys, *limits, "--json"))
    assert document["removed"] == [f"train-0{STAMP}", f"train-1{STAMP}"]
    assert [*tmp_path.iterdir()] == [now]
    for wrong in ("-1", "nan", "x"):
        with pytest.raises(LaunchError, match="--keep"):
            registry.run(["runs", "prune", "--keep", wrong])


def test_what_runs_or_may_run_stays(tmp_path: Path) -> None:
    """Running here, or on an unreachable host that was active within a day."""
    here = still_running(tmp_path, "here-1")
    elsewhere = still_running(tmp_path, "elsewhere-1", place="another pid:[1]", host="another")
    killed = still_running(tmp_path, "killed-1", started=1)
    assert [run.folder for run in kept_runs.surplus(tmp_path, Limits(runs=0))] == [killed]
    aged(elsewhere, 2 * DAY)
    aged(here, 2 * DAY)
    gone = {run.folder for run in kept_runs.surplus(tmp_path, Limits(runs=0))}
    assert gone == {killed, elsewhere}


def test_the_size_is_bounded(tmp_path: Path) -> None:
    """The variable limits the total size; the latest run stays however large it is."""
    for number in range(4):
        kept(tmp_path, f"train-{number}", (number + 1) * HOUR, exit_code=0)
    one = kept_runs.measured(tmp_path / f"train-0{STAMP}").size
    assert one >= 8192
    for gib, left in ((one / 2**30, 1), (2.5 * one / 2**30, 2), (0, 4), ("many", 4)):
        limits = kept_runs.default_limits({kept_runs.VARIABLE: str(gib)})
        assert 4 - len([*kept_runs.surplus(tmp_path, limits)]) == left
    assert kept_runs.default_limits({}) == Limits(500, 2**31)
    kept_runs.make_room(tmp_path, {kept_runs.VARIABLE: str(one / 2**30)})
    assert [path.name for path in tmp_path.iterdir()] == [f"train-0{STAMP}"]


def test_what_only_looks_like_a_run_stays(tmp_path: Path) -> None:
    """A run's name, file names or a record alone are no proof."""
    named, recorded_, both = (kept(tmp_path, name, exit_code=0) for name in ("a", "b", "c"))
    (named / "launcher-0.json").write_text('{"node": 0}')
    recorded_ = recorded_.rename(tmp_path / "my results")
    assert [run.folder for run in kept_runs.surplus(tmp_path, Limits(runs=0))] == [both]


def test_links_are_left_alone(tmp_path: Path) -> None:
    """Symbolic links to or in a run's folder aren't followed."""
    elsewhere = kept(tmp_path / "elsewhere", "train-1", exit_code=0)
    root = tmp_path / "runs"
    run = kept(root, "train-2", exit_code=0)
    (root / "train-3").symlink_to(elsewhere)
    (run / "more").symlink_to(elsewhere)
    for found in [*kept_runs.surplus(root, Limits(runs=0))]:
        assert kept_runs.remove(found) is None
    assert [path.name for path in root.iterdir()] == ["train-3"]
    assert (elsewhere / "attempt-1/rank-0.log").exists()
