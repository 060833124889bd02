"""Where the next attempt resumes, and when retries end: pure functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.checkpoints import save_folders
from safe_launch.checkpoints.checkpoint import Checkpoint, Unusable, newest_first
from safe_launch.checkpoints.resume_point import (
    Loading,
    Start,
    Target,
    is_stuck,
    loading,
    next_start,
    without,
)
from safe_launch.core.choices import Engine
from safe_launch.core.errors import Refused

DS, DDP = Engine.DEEPSPEED, Engine.DDP


def checkpoint(step: int, stage: int | None, world: int = 2) -> Checkpoint:
    """A checkpoint of DeepSpeed, or of DDP if no stage is given."""
    return Checkpoint(
        Path(f"out/checkpoint-{step}"), step, DDP if stage is None else DS, world, stage
    )


def cut(step: int, is_cut_off: bool = True) -> Unusable:
    """An unusable checkpoint."""
    reason = "trainer_state.json is missing" if is_cut_off else "it holds states swapped to disk"
    return Unusable(Path(f"out/checkpoint-{step}"), step, reason, is_cut_off)


@pytest.mark.parametrize("world", [1, 2])
def test_what_fsdp_loads(world: int) -> None:
    """FSDP loads its own checkpoints with any number of ranks; other engines don't."""
    written = Checkpoint(Path("out/checkpoint-4"), 4, Engine.FSDP, 2)
    assert loading(written, Target(Engine.FSDP, None, world)) is Loading.AS_IT_IS
    refused = loading(written, Target(DDP, None, world))
    assert isinstance(refused, Refused)
    assert "FSDP wrote it" in refused.sentence
    assert isinstance(loading(checkpoint(4, None), Target(Engine.FSDP, None, 2)), Refused)


@pytest.mark.parametrize(
    ("stage", "world", "target", "expected"),
    [
        (None, 2, Target(DDP, None, 1), Loading.AS_IT_IS),
        (None, 2, Target(DS, 2, 2), "a Trainer without DeepSpeed wrote it"),
        (2, 2, Target(DDP, None, 2), "DeepSpeed wrote it"),
        (0, 2, Target(DS, 0, 1), Loading.AS_IT_IS),
        (0, 2, Target(DS, 2, 2), "stage 0 can't be loaded at stage 2"),
        (1, 2, Target(DS, 2, 2), Loading.AS_IT_IS),
        (2, 2, Target(DS, 1, 2), Loading.AS_IT_IS),
        (2, 2, Target(DS, 2, 1), Loading.UNIVERSAL),
        (2, 2, Target(DS, 3, 2), "stage 2 can't be loaded at stage 3"),
        (3, 2, Target(DS, 3, 2), Loading.AS_IT_IS),
        (3, 2, Target(DS, None, 2), Loading.AS_IT_IS),
        (3, 2, Target(DS, 2, 2), Loading.UNIVERSAL),
        (3, 4, Target(DS, 2, 2), Loading.UNIVERSAL),
        (2, 2, Target(DS, 2, 2, is_offloaded=False), Loading.AS_IT_IS),
        (2, 2, Target(DS, 2, 2, is_offloaded=True), Loading.UNIVERSAL),
        (3, 2, Target(DS, 3, 2, is_offloaded=True), Loading.AS_IT_IS),
        (3, 4, Target(DS, 3, 2), "on 4 ranks can't be loaded by 2"),
        (3, 2, Target(DS, 0, 2), "stage 3 can't be loaded at stage 0"),
        (2, 2, Target(None, None, 2), Loading.AS_IT_IS),
    ],
)
def test_what_can_be_loaded(
    stage: int | None, world: int, target: Target, expected: Loading | str
) -> None:
    """The rules match the measured table."""
    way = loading(checkpoint(4, stage, world), target)
    if isinstance(expected, Loading):
        assert way is expected
    else:
        assert isinstance(way, Refused)
        assert expected in way.sentence


ZERO2 = Target(DS, 2, 2)
ZERO3 = Target(DS, 3, 2)


def test_goes_on_from_the_newest_and_keeps_what_is_cut_off_aside() -> None:
    """Later, incomplete checkpoints are moved, or the run would write into them."""
    found = newest_first((checkpoint(4, 2), checkpoint(2, 2), cut(6), cut(3)))
    start = next_start(found, 7, ZERO2, may_restart=False)
    assert start == Start(
        checkpoint(4, 2),
        Loading.AS_IT_IS,
        (cut(6),),
        "resumes from checkpoint-4 (7 steps had been done); checkpoint-6 is skipped: "
        "trainer_state.json is missing",
    )


def test_what_would_be_lost_is_said_and_not_done() -> None:
    """A newer complete checkpoint rules out a fresh start and an older checkpoint."""
    found = (checkpoint(4, 2), checkpoint(2, 3))
    spoilt = without((checkpoint(4, 3), checkpoint(2, 3)), checkpoint(4, 3), "it has buffers")
    assert isinstance(next_start(spoilt, 5, ZERO2, may_restart=False), Refused)
    refused = next_start(found, 5, ZERO3, may_restart=False)
    assert isinstance(refused, Refused)
    assert refused.sentence == (
        "cannot resume from checkpoint-4: the optimizer's state of ZeRO stage 2 can't be loaded "
        "at stage 3. The training would restart from scratch, after 5 steps; --allow-restart "
        "allows that, and keeps the checkpoints"
    )
    allowed = next_start(found, 5, ZERO3, may_restart=True)
    assert isinstance(allowed, Start)
    assert allowed.checkpoint == checkpoint(2, 3)
    assert allowed.aside == (checkpoint(4, 2),)


def test_starts_anew_where_nothing_is_lost() -> None:
    """There is no checkpoint, or none was ever complete."""
    nothing = next_start((), 5, ZERO2, may_restart=False)
    assert nothing == Start(
        None, sentence="from the start, after 5 steps: this job has no checkpoint"
    )
    broken = next_start((cut(4),), 5, ZERO2, may_restart=False)
    assert isinstance(broken, Start)
    assert broken.checkpoint is None
    assert broken.aside == (cut(4),)
    assert "checkpoint-4, is cut off (trainer_state.json is missing)" in broken.sentence
    assert next_start((), 0, ZERO2, may_restart=False) == Start(None)


def test_a_checkpoint_of_another_kind_is_progress() -> None:
    """An unrecognized checkpoint still counts as progress."""
    found = (cut(4, is_cut_off=False),)
    assert isinstance(next_start(found, None, ZERO2, may_restart=False), Refused)
    start = next_start(found, None, ZERO2, may_restart=True)
    assert isinstance(start, Start)
    assert start.checkpoint is None
    assert "after an unknown number of steps" in start.sentence


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((0, 0, 0, 0, 0), False),  # the search for settings, before the first step
        ((5, 5, 5), False),
        ((5, 5, 5, 5), True),
        ((5, 4, 3, 5), True),
        ((5, 5, 5, 6), False),
        ((5, None, 5, 5), False),  # unknown isn't zero
        ((5, 5, 0, 0), True),
        ((), False),
    ],
)
def test_gives_up_where_nothing_comes_of_it(steps: tuple[int | None, ...], expected: bool) -> None:
    """Retries end after three attempts in a row without a new step."""
    assert is_stuck(steps) is expected


def test_checkpoints_are_moved_aside_and_never_over_others(tmp_path: Path) -> None:
    """Each move gets a new folder."""
    for round_ in (1, 2):
        (tmp_path / "checkpoint-3").mkdir()
        (tmp_path / "checkpoint-3" / "file").write_text(str(round_))
        place = save_folders.set_aside([tmp_path / "checkpoint-3"])
        assert place == [tmp_path / f"set-aside-{round_}"]
    assert (tmp_path / "set-aside-1" / "checkpoint-3" / "file").read_text() == "1"
    assert save_folders.set_aside([]) == []


def test_what_was_there_before_the_job_is_not_its_own(tmp_path: Path) -> None:
    """Older checkpoints count only if the job has rewritten them."""
    import os

    from safe_launch.checkpoints.checkpoint import Saves

    folder = tmp_path / "checkpoint-3"
    folder.mkdir()
    (folder / "trainer_state.json").write_text('{"global_step": 3}')
    before = save_folders.present(str(tmp_path))
    assert save_folders.find_all(Saves(str(tmp_path), 0, before), {2}) == ()
    (folder / "log.json").write_text('{"loss": 1}\n{"loss": 0.9}\n')  # a callback's own
    (folder / "words.bin").write_bytes(b"words")
    later = before["checkpoint-3"] + 10**9
    os.utime(folder / "trainer_state.json", ns=(later, later))
    (other,) = save_folders.find_all(Saves(str(tmp_path), 0, before), {2})
    assert other.reason == "it has the weights alone (save_only_model)"
