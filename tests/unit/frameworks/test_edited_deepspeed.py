"""A changed DeepSpeed configuration is passed in the script's own format."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from safe_launch.core.settings import Setting
from safe_launch.frameworks.config_files import edited_deepspeed
from safe_launch.frameworks.config_files.deepspeed import load
from safe_launch.frameworks.config_files.edited_deepspeed import edited, new

OWN = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4}
CHANGE = {Setting.ZERO_STAGE: 2}
CHANGED = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The attempt's folder; the current folder has the user's file."""
    monkeypatch.setenv(edited_deepspeed.VARIABLE, str(tmp_path / "run" / "edited"))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "zero3.json").write_text(json.dumps(OWN))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def forms(folder: Path) -> list[Any]:
    """All formats of a configuration."""
    text = json.dumps(OWN)
    coded = base64.urlsafe_b64encode(text.encode()).decode()
    path = folder / "configs" / "zero3.json"
    return [OWN, text, coded, str(path), path, "../configs/zero3.json"]


def test_nothing_is_touched_where_nothing_changes(folder: Path) -> None:
    """The same object is returned, and no file is written."""
    for own in forms(folder):
        assert edited(own, {}) is own
        assert edited(own, {Setting.ZERO_STAGE: 3, Setting.MICRO_BATCH: 4}) is own
    assert not (folder / "run").exists()


def test_a_form_stays_that_form(folder: Path) -> None:
    """A dict, JSON, base64; a file keeps its name in the run's folder and is private."""
    for own in forms(folder):
        changed = edited(own, CHANGE)
        assert load(changed) == CHANGED
        assert load(own) == OWN
        assert isinstance(changed, str) != isinstance(own, dict)
    for own in forms(folder)[3:]:
        path = Path(str(edited(own, CHANGE)))
        assert path.is_relative_to(folder / "run" / "edited")
        assert path.parts[-2:] == ("configs", "zero3.json")
        assert path.stat().st_mode & 0o777 == 0o600
        assert os.listdir(path.parent) == ["zero3.json"]


def test_a_rank_leaves_another_ranks_file(folder: Path) -> None:
    """A file of equal content isn't rewritten; another one is replaced."""
    first = Path(str(edited("../configs/zero3.json", CHANGE)))
    was = first.stat().st_ino
    assert edited("../configs/zero3.json", CHANGE) == str(first)
    assert first.stat().st_ino == was
    (folder / "configs" / "zero3.json").write_text(json.dumps({**OWN, "steps_per_print": 1}))
    assert edited("../configs/zero3.json", CHANGE) == str(first)
    assert load(str(first)) == {**CHANGED, "steps_per_print": 1}


def test_a_file_that_cant_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dict is used, as in processes without a launcher."""
    (folder / "run").write_text("no folder")
    assert edited("../configs/zero3.json", CHANGE) == CHANGED
    monkeypatch.delenv(edited_deepspeed.VARIABLE)
    assert edited("../configs/zero3.json", CHANGE) == CHANGED


def test_a_script_without_one_gets_a_file(folder: Path) -> None:
    """Its name has the stage, as some scripts expect."""
    path = Path(str(new(CHANGE)))
    assert path.name == "zero2.json"
    assert load(path)["zero_optimization"]["stage"] == 2
    assert folder in path.parents
