"""Finding this host's runs by the files that their launchers hold open."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.commands import run_search
from safe_launch.progress import board


def test_a_file_that_is_closed_meanwhile_hides_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors may close while they are being read."""
    folder = tmp_path / "train-20260102-030405-6789ab" / "attempt-1"
    folder.mkdir(parents=True)
    read = Path.readlink

    def late(path: Path) -> Path:
        target = read(path)
        if str(target) == "/dev/null":
            raise FileNotFoundError(path)
        return target

    own = board.Board(0, 1)
    with (folder / "rank-0.log").open("w"), Path("/dev/null").open():
        monkeypatch.setattr(Path, "readlink", late)
        assert folder.parent in set(run_search.running_here())
    own.close()
