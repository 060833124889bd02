"""A node's board as a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from safe_launch.core.errors import Refused
from safe_launch.progress import snapshot
from safe_launch.progress.board import Phase, RankProgress

ROWS = (
    RankProgress(2, 71, 9, Phase.TRAINING, 40, 0.1, 9.0, 0.2, (0.1,), (0.2,), 39, 7.8),
    RankProgress(3, 0, 0, Phase.STARTING, None, 1.0, 1.0, 0.0),
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    """With host and time; only the latest file is left in the folder."""
    before = time.time()
    snapshot.write(tmp_path, 1, ROWS[:1])
    snapshot.write(tmp_path, 1, ROWS)
    found = snapshot.read(tmp_path, 1)
    assert isinstance(found, snapshot.Snapshot)
    assert (found.node, found.host, found.rows) == (1, os.uname().nodename, ROWS)
    assert before <= found.written <= time.time()
    assert [path.name for path in tmp_path.iterdir()] == ["progress-1.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "node 0 hasn't written"),
        (b"", "cut off"),
        (b'{"node": 0, "host": "a", "writ', "cut off"),
        (b'{"node": 0, "ranks": []}', "isn't of this version"),
        (b"\xff\xfe", "cut off"),
    ],
)
def test_what_cant_be_read_gets_a_sentence(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    """Absent, empty, truncated, of another version, or binary."""
    if content is not None:
        (tmp_path / "progress-0.json").write_bytes(content)
    found = snapshot.read(tmp_path, 0)
    assert isinstance(found, Refused)
    assert words in found.sentence


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """The error is returned to the caller, who decides."""
    with pytest.raises(FileNotFoundError):
        snapshot.write(tmp_path / "gone", 0, ROWS)
