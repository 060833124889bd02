"""The location of run directories."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from safe_launch.system import run_directory


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("train.py", "train-7"),
        ("../jobs/train.py", "train-7"),
        ("trl.scripts.sft", "trl.scripts.sft-7"),
        ("bin/train", "train-7"),
        ("two words.py", "two_words-7"),
        ("new\nline.py", "new_line-7"),
        ("\udcff.py", "_-7"),
        ("größe.py", "größe-7"),
    ],
)
def test_a_run_is_named_by_its_script(script: str, name: str, tmp_path: Path) -> None:
    """A file's stem, or a module's full name."""
    assert run_directory.run_folder(tmp_path, script, "7") == tmp_path / name
    assert (tmp_path / name).is_dir()


def test_what_is_no_unicode_can_be_read_again(tmp_path: Path) -> None:
    """A lone surrogate stands for a byte of a name; the rest is unchanged."""
    content = {"na\udcffme": ["\ud800", "\U0001f600 é \\ud800"], "deep": [[["\udcff"]]]}
    run_directory.write(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_bytes()
    expected = {"na\\udcffme": ["\\ud800", "\U0001f600 é \\ud800"], "deep": [[["\\udcff"]]]}
    assert msgspec.json.decode(text) == json.loads(text) == expected
