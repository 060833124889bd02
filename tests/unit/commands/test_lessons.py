"""`safe-launch lessons`: listing, showing and forgetting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safe_launch.commands import registry
from safe_launch.commands.lessons import NONE
from safe_launch.core.errors import LaunchError
from safe_launch.session.lessons import store
from safe_launch.session.lessons.lesson import Forbidden, Lesson

LESSON = Lesson(
    script="train",
    failure="ddp-unused-parameters",
    evidence="builtins.RuntimeError: Expected to have finished reduction",
    run="train-20261101-101112-abcdef",
    date="2026-11-01T10:20:00+00:00",
    circumstances="0123456789ab",
    versions={"torch": "2.13.0"},
    known={"unused_parameters": True},
    forbidden=[Forbidden({"static_graph": [True]}, "an attempt failed with it")],
)
NAME = LESSON.file_name.removesuffix(".json")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lessons' folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(store.SHARED, raising=False)
    return tmp_path / "safe-launch" / "lessons"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The output of the command, which succeeds."""
    assert registry.run(["lessons", *arguments]) == 0
    return capsys.readouterr().out


def test_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    """The output explains where lessons come from."""
    assert said(capsys) == f"{NONE}\n"
    assert json.loads(said(capsys, "--json")) == []
    with pytest.raises(LaunchError) as refused:
        registry.run(["lessons", "show", "zoo"])
    assert (refused.value.code, refused.value.hint) == (64, NONE)


def test_listed_shown_and_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lesson is found by its name or a part of it."""
    assert store.keep(LESSON, folder) is None
    assert said(capsys) == said(capsys, "list", "train") == f"2026-11-01 10:20  {NAME}\n"
    assert said(capsys, "list", "zoo") == f"{NONE}\n"
    shown = " ".join(said(capsys, "show", "unused").split())
    for word in (
        "ddp-unused-parameters",
        "Expected to have finished reduction",
        "unused_parameters: True",
        "static_graph=True: an attempt failed with it",
        "with torch 2.13.0",
        str(folder / LESSON.file_name),
    ):
        assert word in shown
    (document,) = json.loads(said(capsys, "show", NAME, "--json"))
    assert (document["name"], document["known"]) == (NAME, {"unused_parameters": True})
    assert NAME in said(capsys, "forget", NAME)
    assert list(folder.iterdir()) == []


def test_a_name_that_isnt_clear(folder: Path) -> None:
    """An ambiguous name removes no lesson."""
    store.keep(LESSON, folder)
    with pytest.raises(LaunchError, match="the name of the lesson is empty"):
        registry.run(["lessons", "forget", ""])
    store.keep(Lesson("eval", "", "", "eval-1", "2026-11-02", "ba9876543210"), folder)
    for name in ("", "zoo"):
        with pytest.raises(LaunchError):
            registry.run(["lessons", "forget", name])
    with pytest.raises(LaunchError, match="forget which lesson"):
        registry.run(["lessons", "forget"])
    assert len([*folder.iterdir()]) == 2


def test_a_file_that_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid file is named, and the others are listed."""
    store.keep(LESSON, folder)
    (folder / "broken.json").write_text("{")
    assert registry.run(["lessons"]) == 0
    captured = capsys.readouterr()
    assert str(folder / "broken.json") in captured.err
    assert NAME in captured.out
