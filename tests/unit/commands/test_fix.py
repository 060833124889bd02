"""`safe-launch fix`: a patch of the user's files, written only when asked for."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safe_launch.commands.fix.fix_command import fix
from safe_launch.core.errors import ExitCode, LaunchError

SCRIPT = "# größe\nfrom a import f, checkpoint\ny = checkpoint(f)\nz = checkpoint(\n    f,\n)\n"
FIXED = SCRIPT.replace("(f)", "(f, use_reentrant=False)").replace(
    "    f,\n", "    f,\n    use_reentrant=False,\n"
)
OFF = {"use_reentrant": False}


def edit(path: Path, line: int = 0, name: str = "", **values: object) -> dict[str, Any]:
    """An edit as a run leaves it."""
    found = {"file": str(path), "line": line, "name": name, "values": values}
    return {"place": f"{path.name}:{line}", "text": f"{name}(...)", **found}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script of the user's, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


def run_with(folder: Path, edits: Sequence[object], code: int = 0) -> str:
    """A run directory that holds these edits."""
    run = folder / "runs" / "train-20261123-101010-abcdef"
    run.mkdir(parents=True)
    (run / "request.json").write_text("{}")
    document = {"exit_code": code, "attempts": 2, "lasting": edits}
    (run / "outcome.json").write_text(json.dumps(document))
    return str(run)


def test_a_patch_is_shown_and_written_only_when_asked_for(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is kept as it was beside it; its mode stays; a second time nothing is left."""
    run = run_with(script.parent, [edit(script, line, "checkpoint", **OFF) for line in (3, 4)])
    assert fix([run]) == ExitCode.SUCCESS
    shown = capsys.readouterr()
    assert "--- a/train.py\n+++ b/train.py\n" in shown.out
    assert "+y = checkpoint(f, use_reentrant=False)\n" in shown.out
    assert "+    use_reentrant=False,\n" in shown.out
    assert f"safe-launch fix {run} --apply" in shown.err
    assert script.read_text() == SCRIPT
    assert fix([run, "--apply"]) == ExitCode.SUCCESS
    assert script.read_text() == FIXED
    assert script.with_name("train.py.orig").read_text() == SCRIPT
    for path in (script, script.with_name("train.py.orig")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert "as it was: train.py.orig" in capsys.readouterr().err
    assert fix(["--log-dir", "runs"]) == ExitCode.SUCCESS
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "has it already" in shown.err


def test_an_earlier_copy_stays(script: Path) -> None:
    """The next one has a number."""
    (earlier := script.with_name("train.py.orig")).write_text("mine")
    run = run_with(script.parent, [edit(script, 3, "checkpoint", **OFF)])
    fix([run, "--apply"])
    assert earlier.read_text() == "mine"
    assert script.with_name("train.py.orig1").read_text() == SCRIPT


def test_a_changed_file_is_left_to_the_user(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can't be found is told; what can is changed."""
    edits = [edit(script, line, "checkpoint", **OFF) for line in (2, 3)]
    fix([run_with(script.parent, edits), "--apply"])
    assert "left to you: train.py:2: checkpoint(...): it isn't clear" in capsys.readouterr().err
    assert script.read_text() == SCRIPT.replace("(f)", "(f, use_reentrant=False)")


def test_configuration_files_encodings_and_links(script: Path) -> None:
    """A link's target is written, in the encoding that it has; JSON by its keys."""
    latin = script.with_name("latin.py")
    text = f"# -*- coding: latin-1 -*-\r\n{SCRIPT}"
    latin.write_bytes(text.encode("latin-1"))
    (link := script.with_name("link.py")).symlink_to(latin)
    (config := script.with_name("ds.json")).write_text('{"zero_optimization": {"stage": 3}}\n')
    staged = edit(config, **{"zero_optimization.stage": 2})
    edits = [edit(link.resolve(), 4, "checkpoint", **OFF), staged]
    fix([run_with(script.parent, edits), "--apply"])
    assert latin.read_bytes() == text.replace("(f)", "(f, use_reentrant=False)").encode("latin-1")
    assert link.is_symlink()
    assert json.loads(config.read_text()) == {"zero_optimization": {"stage": 2}}


def test_arguments_are_told(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no file to write them into."""
    words = {"place": "the script's arguments", "text": "--bf16 true"}
    other = {"place": "DeepSpeed's configuration", "text": "stage: 2"}
    run = run_with(script.parent, [words, other])
    fix([run])
    told = capsys.readouterr().err
    assert "give the script: --bf16 true" in told
    assert "left to you: DeepSpeed's configuration: stage: 2" in told
    fix([run, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["patches"], document["arguments"]) == ([], ["--bf16 true"])


def test_a_run_without_a_correction(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how the run ended."""
    fix([run_with(script.parent, [], code=1)])
    assert "no correction to keep: ended with exit code 1" in capsys.readouterr().err


def test_what_goes_wrong_is_said(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no file is changed or lost."""
    with pytest.raises(LaunchError, match="no run is kept in"):
        fix(["--log-dir", "nowhere"])
    run = run_with(script.parent, [edit(script, 3, "checkpoint", **OFF)])
    with monkeypatch.context() as patch:
        patch.setattr("safe_launch.system.private_files.create", no_room)
        with pytest.raises(LaunchError, match=r"train\.py can't be written: No space left"):
            fix([run, "--apply"])
    assert [path.name for path in script.parent.glob("train*")] == ["train.py"]
    assert script.read_text() == SCRIPT
    script.unlink()
    with pytest.raises(LaunchError, match=r"train\.py can't be read"):
        fix([run])
    (Path(run) / "outcome.json").write_text('{"exit_code": 0, "lasting": [{"place": 1}]}')
    with pytest.raises(LaunchError, match="isn't of this version"):
        fix([run])


def no_room(*_: object) -> int:
    """A disk without room."""
    raise OSError(28, "No space left on device")
