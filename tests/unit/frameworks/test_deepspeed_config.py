"""DeepSpeed's configuration: its formats, and edits in the script's own format."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from safe_launch.core.settings import Setting
from safe_launch.frameworks.config_files import deepspeed
from safe_launch.frameworks.config_files.deepspeed import (
    Config,
    ConfigError,
    edited,
    load,
    new,
    offload_of,
    with_settings,
)

CONFIG = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {
        "stage": 3,
        "offload_param": {"device": "cpu"},
        "stage3_max_live_parameters": 1,
    },
}
OWN = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4}
CHANGE = {Setting.ZERO_STAGE: 2}
CHANGED = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4}


def test_every_form_that_deepspeed_takes(tmp_path: Path) -> None:
    """A path, a dict, JSON text, base64."""
    text = json.dumps(CONFIG)
    (tmp_path / "ds.json").write_text(text)
    encoded = base64.urlsafe_b64encode(text.encode()).decode()
    for source in (str(tmp_path / "ds.json"), tmp_path / "ds.json", CONFIG, text, encoded):
        assert load(source) == CONFIG


def test_an_edit_leaves_the_original_alone() -> None:
    """The copy has the stage without stage 3's keys; "auto" and the global batch stay."""
    edited = with_settings(
        CONFIG, {Setting.ZERO_STAGE: 2, Setting.MICRO_BATCH: 2, Setting.ACCUMULATION: 2}
    )
    assert edited == {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1},
    }
    assert CONFIG["zero_optimization"]["stage"] == 3
    assert with_settings(CONFIG, {}) == CONFIG


@pytest.mark.parametrize(
    ("config", "settings", "expected"),
    [
        ({}, {Setting.ZERO_STAGE: 2}, {"zero_optimization": {"stage": 2}}),
        ({"zero_optimization": True}, {Setting.ZERO_STAGE: 2}, {"zero_optimization": {"stage": 2}}),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
            {Setting.ZERO_STAGE: 1},
            {"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}},
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
            {Setting.ZERO_STAGE: 3},
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
        ),
        (
            {"train_micro_batch_size_per_gpu": 4},
            {Setting.MICRO_BATCH: 2, Setting.ACCUMULATION: 2},
            {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2},
        ),
        (
            {"bf16": {"enabled": "auto"}},
            {Setting.STATIC_GRAPH: True},
            {"bf16": {"enabled": "auto"}},
        ),
    ],
)
def test_what_an_edit_changes(
    config: Config, settings: dict[Setting, int], expected: Config
) -> None:
    """Only keys of the settings change or are added."""
    assert with_settings(config, settings) == expected


@pytest.mark.parametrize(
    ("optimizer", "parameters", "expected"),
    [
        (None, None, "none"),
        ({"device": "cpu"}, None, "optimizer"),
        ({"device": "nvme"}, {"device": "none"}, "optimizer"),
        ({"device": "cpu"}, {"device": "cpu"}, "optimizer_and_parameters"),
        ({}, {"device": None}, "none"),
    ],
)
def test_what_is_kept_in_host_memory(
    optimizer: Config | None, parameters: Config | None, expected: str
) -> None:
    """Absent sections, null and "none" mean no offload."""
    zero = {"stage": 3, "offload_optimizer": optimizer, "offload_param": parameters}
    assert offload_of({"zero_optimization": zero}) == expected


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (3, "a DeepSpeed configuration is a path or a dict, not 3"),
        (None, "a DeepSpeed configuration is a path or a dict, not None"),
        ("no-such-file.json", "no-such-file.json: no such DeepSpeed configuration file"),
        ("x" * 5000, "no such DeepSpeed configuration file"),
        (".", ".: can't be read: it isn't a regular file"),
        ("{", "the JSON given for DeepSpeed:1: not JSON: Expecting property name"),
        ("list.json", "list.json: a JSON object is expected, not list"),
        ("broken.json", "broken.json:2: not JSON: Expecting value"),
        ("twice.json", "twice.json: the key `stage` is given twice"),
        ("binary.json", "binary.json: can't be read: it isn't UTF-8"),
        (base64.urlsafe_b64encode(b"[1]").decode(), "a JSON object is expected, not list"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_what_is_no_configuration(
    source: object, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LaunchError with a message, not the parser's traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text('{"a": 1,\n "b": }')
    (tmp_path / "twice.json").write_text('{"zero_optimization": {"stage": 1, "stage": 2}}')
    (tmp_path / "binary.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError) as caught:
        load(source)
    assert problem in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The attempt's folder; the current folder has the user's file."""
    monkeypatch.setenv(deepspeed.EDITED, str(tmp_path / "run" / "edited"))
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
    monkeypatch.delenv(deepspeed.EDITED)
    assert edited("../configs/zero3.json", CHANGE) == CHANGED


def test_a_script_without_one_gets_a_file(folder: Path) -> None:
    """Its name has the stage, as some scripts expect."""
    path = Path(str(new(CHANGE)))
    assert path.name == "zero2.json"
    assert load(path)["zero_optimization"]["stage"] == 2
    assert folder in path.parents
