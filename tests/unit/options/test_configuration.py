"""Defaults for options from files: which count, what they may say, and who wins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safe_launch.commands import command_line
from safe_launch.core.errors import LaunchError
from safe_launch.options.parser import by_files

PROJECT = '[tool.safe-launch]\nnproc = 2\nset = ["micro_batch=2", "accumulation=4"]\n'


def words(folder: Path, **variables: str) -> list[str]:
    """The options that files set."""
    return [word for default in by_files(folder, variables) for word in default.words]


def user(tmp_path: Path, text: str) -> str:
    """A user's file."""
    (file := tmp_path / "config.yaml").write_text(text)
    return str(file)


def test_the_users_file(tmp_path: Path) -> None:
    """In the home's folder for configurations, or where a variable says; an empty one is none."""
    text = "log-dir: runs\nmax_restarts: 2\nstrict: true\nallow-restart: false\n"
    file = tmp_path / ".config/safe-launch/config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    expected = ["--log-dir=runs", "--max_restarts=2", "--strict"]
    assert words(tmp_path, HOME=str(tmp_path)) == expected
    assert words(tmp_path, XDG_CONFIG_HOME=str(file.parents[1])) == expected
    assert words(tmp_path, SAFE_LAUNCH_CONFIG=str(file)) == expected
    assert words(tmp_path, SAFE_LAUNCH_CONFIG="", HOME=str(tmp_path)) == []
    assert words(tmp_path) == []
    file.write_text("# nothing yet\n")
    assert words(tmp_path, HOME=str(tmp_path)) == []


def test_the_projects_table(tmp_path: Path) -> None:
    """The nearest pyproject.toml above the script counts, behind the user's file."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (deep := tmp_path / "a/b").mkdir(parents=True)
    own = ["--nproc=2", "--set=micro_batch=2", "--set=accumulation=4"]
    assert words(deep) == own
    file = user(tmp_path, "nproc: 8\n")
    assert words(deep, SAFE_LAUNCH_CONFIG=file) == ["--nproc=8", *own]
    (tmp_path / "a/pyproject.toml").write_text("[tool.other]\n")
    assert words(deep) == []


@pytest.mark.parametrize(
    "text",
    [
        "# [tool.safe-launch]\n",
        "[project]\ndescription = 'see [tool.safe-launch]'\n",
        "tool = 1 # [tool.safe-launch]\n",
        "[tool.other] # [tool.safe-launch]\n",
    ],
)
def test_a_table_that_is_only_mentioned(tmp_path: Path, text: str) -> None:
    """A comment or a text with our table's name sets nothing."""
    (tmp_path / "pyproject.toml").write_text(text)
    assert words(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_strangers_project_doesnt_count(tmp_path: Path) -> None:
    """A folder above may be anybody's; whose script it is may say how it is launched."""
    (project := tmp_path / "pyproject.toml").write_text(PROJECT)
    (deep := tmp_path / "a").mkdir()
    os.chown(project, 4711, -1)
    assert words(deep) == []
    os.chown(deep, 4711, -1)
    assert words(deep)


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("strickt: true", "strickt: there is no such option", "did you mean `strict`?"),
        ("tee: [1, 2]", "tee: a single value", ""),
        ("tee: {a: 1}", "tee: a number or a text", ""),
        ("tee:", "tee: a number or a text", ""),
        ("tee: true", "tee: a number or a text", ""),
        ("strict: 1", "strict: true or false", ""),
        ("fix: always", "fix: --fix: `always` is none of auto", "--help"),
        ("autotuning: run", "autotuning: --autotuning isn't done here", ""),
        ("module: true", "module: it belongs to a single launch", ""),
        ("- tee", "a mapping of options", "such as"),
        ("a: [", "config.yaml:1: not YAML", ""),
        ("a: 1\nb: \tx: 2", "config.yaml:2: not YAML", ""),
        ("\0", "can't be read", ""),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    """With the file and the key."""
    file = user(tmp_path, text)
    with pytest.raises(LaunchError) as raised:
        by_files(tmp_path, {"SAFE_LAUNCH_CONFIG": file})
    assert str(file) in raised.value.problem
    assert problem in raised.value.problem
    assert hint in raised.value.hint
    with pytest.raises(LaunchError, match="there is no such file"):
        by_files(tmp_path, {"SAFE_LAUNCH_CONFIG": f"{file}.gone"})
    (tmp_path / "pyproject.toml").write_text("[tool.safe-launch]\nnproc =\n")
    with pytest.raises(LaunchError, match=r"pyproject\.toml can't be read"):
        by_files(tmp_path, {})


def test_a_script_that_cant_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no file can have is told as before; a folder that is gone has a sentence."""
    with pytest.raises(LaunchError, match="no script has such a long name"):
        command_line.run(["a" * 5000])
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(LaunchError, match="current folder can't be used: No such file"):
        command_line.run(["train.py"])


def test_the_command_line_and_variables_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are the weakest, and what they set is said with the file."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.safe-launch]\nnproc = 5\nfix = "suggest"\n')
    seen = []
    monkeypatch.setattr(command_line, "plan", lambda options: seen.append(options) or 0)
    monkeypatch.setenv("SAFE_LAUNCH_CONFIG", user(tmp_path, "nproc: 7\nmax-restarts: 1\n"))
    monkeypatch.setenv("PET_MAX_RESTARTS", "3")
    command_line.run(["plan", "--fix", "once", str(tmp_path / "train.py"), "--nproc", "9"])
    (options,) = seen
    assert (options.nproc, options.fix, options.max_restarts) == ("5", "once", 3)
    told = capsys.readouterr().err
    assert f"defaults --nproc=7 --max-restarts=1 ({tmp_path / 'config.yaml'})" in told
    assert f"defaults --nproc=5 --fix=suggest ({tmp_path / 'pyproject.toml'})" in told
