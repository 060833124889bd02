"""`safe-launch fix`: a patch for the user's files, written only with --apply."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safe_launch.commands import registry
from safe_launch.core.errors import ExitCode, LaunchError

CONFIG = '{\n  "größe": 1,\n  "zero_optimization": {"stage": 3}\n}\n'
FIXED = CONFIG.replace("3}", "2}")
STAGE = {"zero_optimization.stage": 2}


def edit(path: Path, line: int = 0, **values: object) -> dict[str, Any]:
    """An edit as a run records it."""
    found = {"file": str(path), "line": line, "values": values}
    return {"place": f"{path.name}:{line}", "text": "f(...)", **found}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ds.json"
    path.write_text(CONFIG)
    path.chmod(0o640)
    return path


def run_with(folder: Path, edits: Sequence[object], code: int = 0) -> str:
    """A run directory with these edits."""
    run = folder / "runs" / "train-20261123-101010-abcdef"
    run.mkdir(parents=True)
    (run / "request.json").write_text("{}")
    document = {"exit_code": code, "attempts": 2, "lasting": edits}
    (run / "outcome.json").write_text(json.dumps(document))
    return str(run)


def test_a_patch_is_shown_and_written_only_when_asked_for(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original is backed up, the mode is kept, and a second run changes nothing."""
    run = run_with(config.parent, [edit(config, **STAGE)])
    assert registry.run(["fix", run]) == ExitCode.SUCCESS
    shown = capsys.readouterr()
    assert "--- a/ds.json\n+++ b/ds.json\n" in shown.out
    assert '+  "zero_optimization": {"stage": 2}\n' in shown.out
    assert f"safe-launch fix {run} --apply" in shown.err
    assert config.read_text() == CONFIG
    assert registry.run(["fix", run, "--apply"]) == ExitCode.SUCCESS
    assert config.read_text() == FIXED
    assert config.with_name("ds.json.orig").read_text() == CONFIG
    for path in (config, config.with_name("ds.json.orig")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert "as it was: ds.json.orig" in capsys.readouterr().err
    assert registry.run(["fix", "--log-dir", "runs"]) == ExitCode.SUCCESS
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "already has this change" in shown.err


def test_an_earlier_copy_stays(config: Path) -> None:
    """The next backup gets a number."""
    (earlier := config.with_name("ds.json.orig")).write_text("mine")
    registry.run(["fix", run_with(config.parent, [edit(config, **STAGE)]), "--apply"])
    assert earlier.read_text() == "mine"
    assert config.with_name("ds.json.orig1").read_text() == CONFIG


def test_python_is_left_to_its_author(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """File, line and new text are shown; --apply has no effect on a script."""
    (script := config.with_name("train.py")).write_text("f()\n")
    both = run_with(config.parent, [edit(script, 1, a=2), edit(config, **STAGE)])
    assert registry.run(["fix", both, "--json"]) == ExitCode.SUCCESS
    document = json.loads(capsys.readouterr().out)
    assert [patch["file"] for patch in document["patches"]] == [str(config)]
    assert document["others"] == ["train.py:1: f(...)"]
    assert registry.run(["fix", both, "--apply"]) == ExitCode.SUCCESS
    assert "edit by hand: train.py:1: f(...)" in capsys.readouterr().err
    assert (script.read_text(), config.read_text()) == ("f()\n", FIXED)
    alone = run_with(config.parent / "alone", [edit(script, 1)])
    assert registry.run(["fix", alone]) == ExitCode.SUCCESS
    assert registry.run(["fix", alone, "--apply"]) == ExitCode.USAGE


def test_a_changed_file_is_left_to_the_user(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that can't be patched are named; the others are patched."""
    edits = [edit(config, **{"größe.stage": 2}), edit(config, **STAGE)]
    registry.run(["fix", run_with(config.parent, edits), "--apply"])
    assert "edit by hand: ds.json:0: f(...): " in capsys.readouterr().err
    assert config.read_text() == FIXED


def test_arguments_are_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line arguments are printed: no file holds them."""
    words = {"place": "the script's arguments", "text": "--bf16 true"}
    other = {"place": "DeepSpeed's configuration", "text": "stage: 2"}
    run = run_with(config.parent, [words, other])
    registry.run(["fix", run])
    told = capsys.readouterr().err
    assert "pass to the script: --bf16 true" in told
    assert "edit by hand: DeepSpeed's configuration: stage: 2" in told
    registry.run(["fix", run, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["patches"], document["arguments"]) == ([], ["--bf16 true"])


def test_a_run_without_a_correction(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output states how the run ended."""
    registry.run(["fix", run_with(config.parent, [], code=1)])
    assert "no correction to make permanent: ended with exit code 1" in capsys.readouterr().err


def test_what_goes_wrong_is_said(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On errors no file is changed or lost."""
    with pytest.raises(LaunchError, match="no run is kept in"):
        registry.run(["fix", "--log-dir", "nowhere"])
    run = run_with(config.parent, [edit(config, **STAGE)])
    with monkeypatch.context() as patch:
        patch.setattr("safe_launch.system.private_files.create", no_room)
        with pytest.raises(LaunchError, match=r"ds\.json can't be written: No space left"):
            registry.run(["fix", run, "--apply"])
    assert [path.name for path in config.parent.glob("ds*")] == ["ds.json"]
    assert config.read_text() == CONFIG
    config.unlink()
    with pytest.raises(LaunchError, match=r"ds\.json can't be read"):
        registry.run(["fix", run])
    (Path(run) / "outcome.json").write_text('{"exit_code": 0, "lasting": [{"place": 1}]}')
    with pytest.raises(LaunchError, match="isn't of this version"):
        registry.run(["fix", run])


def test_lines_that_end_as_on_windows_stay_so(config: Path) -> None:
    """A file with CRLF line ends throughout keeps them."""
    config.write_bytes(b'{\r\n  "bf16": {"enabled": true}\r\n}\r\n')
    registry.run(["fix", run_with(config.parent, [edit(config, **STAGE)]), "--apply"])
    content = config.read_bytes()
    assert json.loads(content)["zero_optimization"] == {"stage": 2}
    assert content.count(b"\r\n") == content.count(b"\n") > 2


def test_a_link_is_followed_and_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The link's target is written."""
    (link := config.with_name("link.json")).symlink_to(config)
    registry.run(["fix", run_with(config.parent, [edit(link, **STAGE)]), "--apply"])
    assert f"written: {config};" in capsys.readouterr().err
    assert link.readlink() == config


def test_all_refused_is_no_success(config: Path) -> None:
    """The exit code shows that no edit was applied."""
    run = run_with(config.parent, [edit(config, **{"größe.stage": 2})])
    assert registry.run(["fix", run]) == ExitCode.SUCCESS  # there was no file to write
    assert registry.run(["fix", run, "--apply"]) == ExitCode.USAGE


def test_what_is_no_file_isnt_read(config: Path) -> None:
    """Reading a pipe would block; reading a device would never end."""
    config.unlink()
    os.mkfifo(config)
    run = run_with(config.parent, [edit(config, **STAGE), edit(Path("/dev/zero"))])
    with pytest.raises(LaunchError, match=r"ds\.json can't be read: it isn't a regular file"):
        registry.run(["fix", run, "--apply"])


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_isnt_the_latest_run(config: Path, name: str) -> None:
    """An unset variable must not lead to patched files."""
    run_with(config.parent, [edit(config, **STAGE)])
    with pytest.raises(LaunchError, match="the name of the run is empty"):
        registry.run(["fix", name, "--apply", "--log-dir", "runs"])
    assert config.read_text() == CONFIG


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_record_writes_nothing(config: Path) -> None:
    """Another user's record could name any file."""
    run = run_with(config.parent, [edit(config, **STAGE)])
    os.chown(run, 65534, -1)
    assert registry.run(["fix", run]) == ExitCode.SUCCESS
    with pytest.raises(LaunchError, match="belongs to nobody, whose record names"):
        registry.run(["fix", run, "--apply"])
    assert config.read_text() == CONFIG


def no_room(*_: object) -> int:
    """A full disk."""
    raise OSError(28, "No space left on device")
