"""DeepSpeed's configuration: its formats, and edits."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from safe_launch.core.settings import Setting
from safe_launch.frameworks.config_files.deepspeed import (
    Config,
    ConfigError,
    load,
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
