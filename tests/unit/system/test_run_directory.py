"""Where runs are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.system import run_directory


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("train.py", "train-7"),
        ("../jobs/train.py", "train-7"),
        ("trl.scripts.sft", "trl.scripts.sft-7"),
        ("bin/train", "train-7"),
    ],
)
def test_a_run_is_named_by_its_script(script: str, name: str, tmp_path: Path) -> None:
    """By a file without its folders and ending, by a module as a whole."""
    assert run_directory.run_folder(tmp_path, script, "7") == tmp_path / name
    assert (tmp_path / name).is_dir()
