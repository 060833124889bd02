"""DeepSpeed's configuration: what it may be given as, and what an edit changes."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from safe_launch.deepspeed_config import ConfigError, load, with_settings
from safe_launch.settings import Setting

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
    """A path, a dict, JSON text, base64 of it."""
    text = json.dumps(CONFIG)
    (tmp_path / "ds.json").write_text(text)
    encoded = base64.urlsafe_b64encode(text.encode()).decode()
    for source in (str(tmp_path / "ds.json"), tmp_path / "ds.json", CONFIG, text, encoded):
        assert load(source) == CONFIG


def test_an_edit_leaves_the_original_alone() -> None:
    """The copy has the stage and loses what belongs to stage 3; "auto" and the whole batch stay."""
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


@pytest.mark.parametrize("source", [3, "no-such-file.json", "{", "[1]"])
def test_what_is_no_configuration(source: object, tmp_path: Path) -> None:
    """An error of ours with words of its own, never a traceback of the reader's."""
    (tmp_path / "list.json").write_text("[1]")
    if source == "[1]":
        source = str(tmp_path / "list.json")
    with pytest.raises(ConfigError):
        load(source)
