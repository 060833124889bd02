"""`safe-launch status` on all kinds of run directories."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from safe_launch.commands import registry, run_search
from safe_launch.core.errors import LaunchError
from safe_launch.progress import snapshot
from safe_launch.progress.board import Board, Phase, RankProgress
from safe_launch.progress.slot import slot_of
from safe_launch.system.kept_runs import LauncherRecord, recorded, records

ROW = RankProgress(1, 71, 9, Phase.TRAINING, 7, 0.1, 9.0, 0.2)


@pytest.fixture(autouse=True)
def nothing_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides other runs on this host, such as other tests'."""
    monkeypatch.setattr(run_search, "running_here", lambda: iter(()))


def kept(root: Path, name: str, code: int | None = 0) -> Path:
    """A run directory of a run that ended or whose launcher was killed."""
    run = root / name
    (run / "attempt-1").mkdir(parents=True)
    (run / "request.json").write_text("{}")
    with recorded(run, 0, "train.py"):
        (found,) = records(run)
    assert isinstance(found, LauncherRecord)
    if code is None:
        dead = replace(found, started=1)
        (run / "launcher-0.json").write_bytes(msgspec.json.encode(dead))
    else:
        (run / "outcome.json").write_text(json.dumps({"exit_code": code, "attempts": 1}))
    return run


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The command's output."""
    assert registry.run(["status", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_latest_runs_where_none_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last five runs are listed; an empty folder gets a message."""
    for number in range(7):
        kept(tmp_path, f"train-{number}")
    (tmp_path / "notes").mkdir()
    text = told(capsys, "--log-dir", tmp_path)
    assert text.startswith("no run of yours is running on this host; the latest that ended")
    assert text.count("ended") == 6
    assert "notes" not in text
    assert "none is kept in" in told(capsys, "--log-dir", tmp_path / "gone")


def test_a_run_that_is_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The board of a running run is shown, as text and as JSON."""
    kept(tmp_path, "train-1")
    run = tmp_path / "train-2"
    (run / "attempt-1").mkdir(parents=True)
    own = Board(0, 2)
    slot = slot_of(own.path, 1)
    slot.begin(1)
    slot.moved(41)
    with recorded(run, 0, "train.py --lr 1"):
        text = told(capsys, "--log-dir", tmp_path)
        found = json.loads(told(capsys, "train-2", "--log-dir", tmp_path, "--json"))
    own.close()
    assert "train-1" not in text
    assert "train-2 has run on" in text
    assert [line.split()[0] for line in text.splitlines() if " starting " in line] == ["0", "1"]
    (only,) = found["runs"]
    assert (only["run"], only["is_running"]) == ("train-2", True)
    assert [rank["step"] for rank in only["ranks"]] == [None, 41]


def test_a_node_whose_board_is_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rows come from the shared folder, or a note is shown."""
    run = kept(tmp_path, "train-1", None)
    (found,) = records(run)
    assert isinstance(found, LauncherRecord)
    for node, host in enumerate(("alpha", "beta", "gamma")):
        there = replace(found, node=node, host=host, place="there")
        (run / f"launcher-{node}.json").write_bytes(msgspec.json.encode(there))
    snapshot.write(run / "attempt-1", 0, [replace(ROW, rank=0)])
    snapshot.write(run / "attempt-1", 1, [ROW])
    text = told(capsys, "train", "--log-dir", tmp_path)
    assert "train-1 has run on alpha for" in text
    assert text.count("as of") == 2
    assert "note: node 2 hasn't written how far it came" in text


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("outcome.json", '{"exit_code": 0, "att', "outcome.json isn't of this version"),
        ("outcome.json", '{"attempts": 2}', "has no valid exit code of the run"),
        ("outcome.json", "[]", "outcome.json isn't of this version"),
        ("launcher-0.json", "\0\0\0", "launcher-0.json isn't of this version"),
        ("attempt-1/failures.json", '{"findings": [', "failures.json isn't of this version"),
        ("attempt-1/failures.json", '{"findings": [7]}', "ended"),
        ("attempt-1/failures.json", '{"findings": 7}', "ended"),
        ("attempt-1/progress-0.json", "{}", "ended"),
    ],
)
def test_half_written_files_get_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: str, words: str
) -> None:
    """Truncated files give a message, not a traceback."""
    run = kept(tmp_path, "train-1")
    (run / file).write_text(content)
    assert words in told(capsys, run)
    json.loads(told(capsys, run, "--json"))


def test_an_older_versions_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no launcher record, and its attempts failed."""
    run = tmp_path / "train-1"
    for number in (1, 2, 10):
        (run / f"attempt-{number}").mkdir(parents=True)
    root = {"record": {"rank": 1, "exception": "builtins.KeyError", "message": "'x'"}}
    failures = json.dumps({"findings": [{**root, "entry": None}]})
    (run / "attempt-2" / "failures.json").write_text(failures)
    known = json.dumps({"findings": [{**root, "entry": "disk-full"}]})
    (run / "attempt-1" / "failures.json").write_text(known)
    text = told(capsys, run)
    assert "of an older version" in text
    assert "attempt 1 failed: rank 1: disk-full" in text
    assert "attempt 2 failed: rank 1: KeyError: 'x'" in text


def test_a_launcher_that_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL left it no time to write."""
    assert "ended without a word" in told(capsys, kept(tmp_path, "train-1", None))


@pytest.mark.parametrize("text", ["train-20", "train-2", "other", "runs/train-1", "attempt"])
def test_how_a_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """By name, even if it is part of another's, part of a name, folder or attempt."""
    for name in ("train-1", "train-2", "train-20", "other-3"):
        kept(tmp_path / "runs", name)
    monkeypatch.chdir(tmp_path)
    asked = "runs/train-2/attempt-1" if text == "attempt" else text
    expected = {"other": "other-3", "runs/train-1": "train-1", "attempt": "train-2"}
    found = run_search.named(asked, tmp_path / "runs")
    assert found.name == expected.get(text, text)


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("train-20261", "part of the names of 2 runs", "give more"),
        ("trian", "there is no run `trian`", "did you mean `train`?"),
        ("zzz", "there is no run `zzz`", "the nearest are"),
    ],
)
def test_a_run_that_isnt_there(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    """The error suggests similar names."""
    kept(tmp_path, "train-20261122-181725-aaaaaa")
    kept(tmp_path, "train-20261122-181725-bbbbbb")
    with pytest.raises(LaunchError) as caught:
        run_search.named(text, tmp_path)
    assert problem in caught.value.problem
    assert hint in caught.value.hint


def test_among_runs_of_one_name_the_running_one_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the running one has a board."""
    kept(tmp_path, "train-1")
    running = kept(tmp_path, "train-2", None)
    monkeypatch.setattr(run_search, "running_here", lambda: iter((running,)))
    assert run_search.named("train", tmp_path) == running


def test_watching_ends_with_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ended run is shown once."""
    monkeypatch.setattr("safe_launch.commands.status.time", SimpleNamespace(sleep=pytest.fail))
    assert "exit code 0" in told(capsys, kept(tmp_path, "train-1"), "--watch")
