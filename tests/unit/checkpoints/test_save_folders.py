"""Ranks that save to separate folders are reported, and their parts are merged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from safe_launch.checkpoints import discovery
from safe_launch.checkpoints.checkpoint import Checkpoint, Saves
from safe_launch.checkpoints.save_folders import gather, places, warning
from support.checkpoints import zero_checkpoint

OWN = "zero_pp_rank_1_mp_rank_00_optim_states.pt"


def apart(folder: Path, step: int) -> None:
    """A checkpoint of two ranks with each rank's part in a separate folder."""
    whole = zero_checkpoint(folder / "a", step, stage=2)
    for path in [*whole.rglob(OWN), whole / "rng_state_1.pth"]:
        target = folder / "b" / path.relative_to(folder / "a")
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)


def test_it_is_told_once_all_ranks_have_said_where() -> None:
    """The report waits for all ranks, also in a second training."""
    a, b = Saves("/runs/12-00-01"), Saves("/runs/12-00-02")
    assert warning({0: a}, [0, 1]) is None
    assert warning({0: a, 1: a}, [0, 1]) is None
    assert warning({0: a, 1: Saves("/runs/12-00-02", 1)}, [0, 1]) is None
    sentence = warning({2: a, 3: a, 4: b}, [2, 3, 4])
    assert sentence is not None
    assert "rank 2 to /runs/12-00-01, rank 4 to /runs/12-00-02" in sentence
    assert places({1: b, 0: a, 2: a}) == (a, b)
    assert places({}) == ()


@pytest.mark.parametrize("has_links", [True, False])
def test_a_checkpoint_is_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """Missing files are linked or copied; existing files and the other folder are unchanged."""
    if not has_links:

        def refuse(*_: object) -> None:
            raise OSError(errno.EXDEV, "another disk")

        monkeypatch.setattr(os, "link", refuse)
    apart(tmp_path, 4)
    both = Saves(str(tmp_path / "a")), Saves(str(tmp_path / "b"))
    assert not any(isinstance(each, Checkpoint) for each in discovery.find_all(both[0], {2}))
    gather(both)
    (found,) = discovery.find_all(both[0], {2})
    assert isinstance(found, Checkpoint)
    assert found.step == 4
    assert len(list((tmp_path / "b").rglob(OWN))) == 1
    assert not list(tmp_path.rglob("*.part"))


def test_what_an_earlier_job_left_isnt_taken(tmp_path: Path) -> None:
    """An earlier job's checkpoint of the same step belongs to another training."""
    apart(tmp_path, 4)
    folders = [str(tmp_path / name) for name in "ab"]
    gather((Saves(folders[0]), Saves(folders[1], before=discovery.present(folders[1]))))
    assert not list((tmp_path / "a").rglob(OWN))
    gather((Saves(str(tmp_path / "none")), Saves(folders[1])))
    assert not (tmp_path / "none").exists()
