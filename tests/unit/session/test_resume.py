"""Preparing the disk for the next attempt, and when that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.checkpoints import universal
from safe_launch.checkpoints.checkpoint import Checkpoint, Saves
from safe_launch.checkpoints.resume_point import Loading, Start
from safe_launch.core.choices import Engine, Offload
from safe_launch.core.constraint import Cause, CauseKind, Constraint
from safe_launch.core.errors import Refused
from safe_launch.core.preset import preset_of
from safe_launch.core.request import Limits
from safe_launch.core.settings import Fact, Setting, Value
from safe_launch.diagnosis.attempt import Attempt, Failed, Interrupted, Outcome, Seen, Superseded
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.planning.plan import Change, Plan
from safe_launch.planning.search import as_asked
from safe_launch.session.resume import AGAIN, clean_up, latest_saves, prepare, steps_of, target_of
from support.checkpoints import plain_checkpoint, zero_checkpoint
from support.worlds import HARDWARE, LORA_DDP, REQUEST, ZERO2, ZERO3, world

PLAN = as_asked(REQUEST, world(LORA_DDP), HARDWARE)
ATTEMPT = Attempt(0, PLAN, Path())


def failed(step: int | None, saves: Saves | None = None, plan: Plan = PLAN) -> Outcome:
    """A failure at a step of a training that saves to this folder."""
    record = FailureRecord(0, 1.0, step=step)
    places = () if saves is None else (saves,)
    return Failed(replace(ATTEMPT, plan=plan), (record,), Seen({}, None, places))


def enforced(plan: Plan, **settings: Value) -> Plan:
    """The plan with corrections."""
    cause = Constraint((), Cause(CauseKind.ATTEMPT, "1", "it has failed"))
    named = {Setting(name): value for name, value in settings.items()}
    changes = tuple(Change(name, None, "", value, cause) for name, value in named.items())
    preset = preset_of({**plan.preset.settings(), **named})
    return replace(plan, changes=changes, preset=preset)


def test_nothing_was_done_yet() -> None:
    """The next attempt begins like the first."""
    assert prepare(PLAN, [failed(0)], "run") == Start(None)
    assert prepare(PLAN, [failed(None)], "run") == Start(None)


def test_resumes_from_the_newest_of_its_own(tmp_path: Path) -> None:
    """Later checkpoints are moved aside; those from before the job are ignored."""
    plain_checkpoint(tmp_path, 2)
    saves = Saves(
        str(tmp_path),
        1,
        {"checkpoint-2": (tmp_path / "checkpoint-2" / "trainer_state.json").stat().st_mtime_ns},
    )
    plain_checkpoint(tmp_path, 4)
    (plain_checkpoint(tmp_path, 6) / "trainer_state.json").unlink()
    start = prepare(PLAN, [failed(7, saves)], "run")
    assert isinstance(start, Start)
    assert start.checkpoint == Checkpoint(tmp_path / "checkpoint-4", 4, Engine.DDP, 2)
    assert start.variable == f"1:{tmp_path / 'checkpoint-4'}"
    assert start.sentence == (
        "resumes from checkpoint-4 (7 steps had been done); checkpoint-6 is skipped: "
        f"trainer_state.json is missing; checkpoint-6 moved to {tmp_path / 'set-aside-1'}; {AGAIN}"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("checkpoint-2", "checkpoint-4", "set-aside-1")
    ]


def test_it_is_told_what_is_trained_again(tmp_path: Path) -> None:
    """The second of a script's two trainings failed, with and without steps."""
    (tmp_path / "second").mkdir()
    saves = Saves(str(tmp_path / "second"), 1)
    start = prepare(PLAN, [failed(0, saves)], "run")
    assert isinstance(start, Start)
    assert start.sentence == AGAIN
    plain_checkpoint(tmp_path / "second", 3)
    start = prepare(PLAN, [failed(3, saves)], "run")
    assert isinstance(start, Start)
    assert start.sentence == f"resumes from checkpoint-3; {AGAIN}"


def test_it_is_told_that_an_own_loop_trains_again() -> None:
    """A worker reported another training's earlier steps."""
    record = FailureRecord(0, 1.0, step=0, has_trained=True)
    start = prepare(PLAN, [Failed(ATTEMPT, (record,))], "run")
    assert isinstance(start, Start)
    assert start.sentence == AGAIN


def test_the_folders_of_all_attempts_count(tmp_path: Path) -> None:
    """Some scripts save to a new folder at every launch."""
    plain_checkpoint(tmp_path / "a", 3)
    plain_checkpoint(tmp_path / "b", 2)
    outcomes = [failed(4, Saves(str(tmp_path / name))) for name in ("a", "b")]
    start = prepare(PLAN, outcomes, "run")
    assert isinstance(start, Start)
    assert start.checkpoint is not None
    assert start.checkpoint.folder == tmp_path / "a" / "checkpoint-3"


def test_progress_is_not_thrown_away(tmp_path: Path) -> None:
    """Files are unchanged unless discarding is allowed."""
    zero_checkpoint(tmp_path, 4, stage=2)
    plan = as_asked(REQUEST, world(ZERO3), HARDWARE)
    outcomes = [failed(5, Saves(str(tmp_path)), plan)]
    refused = prepare(plan, outcomes, "run")
    assert isinstance(refused, Refused)
    assert refused.sentence.startswith("cannot resume from checkpoint-4: ")
    assert (tmp_path / "checkpoint-4").is_dir()
    allowed = replace(plan, request=replace(REQUEST, limits=Limits(allow_restart=True)))
    start = prepare(allowed, outcomes, "run")
    assert isinstance(start, Start)
    assert (start.checkpoint, start.variable, start.resume) == (None, "", None)
    assert (tmp_path / "set-aside-1" / "checkpoint-4").is_dir()


def test_a_job_that_makes_no_new_step_ends() -> None:
    """After three attempts in a row."""
    refused = Refused("3 attempts in a row have made no new step")
    assert prepare(PLAN, [failed(5)] * 4, "run") == refused


@pytest.mark.parametrize("fails", [False, True])
def test_another_form_of_a_checkpoint_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """It is marked as incomplete while being made; errors are the reason to refuse."""
    asked = []

    def convert(checkpoint: Checkpoint, variables: Mapping[str, str]) -> Path | Refused:
        asked.append((checkpoint.step, dict(variables)))
        made = checkpoint.folder.with_name("universal-4")
        made.mkdir()
        return Refused("it has buffers") if fails else made

    monkeypatch.setattr(universal, "convert", convert)
    zero_checkpoint(tmp_path, 4, stage=3)
    plan = enforced(as_asked(REQUEST, world(ZERO3), HARDWARE), zero_stage=2)
    start = prepare(plan, [failed(5, Saves(str(tmp_path)))], "the-run")
    assert asked == [(4, {"SAFE_LAUNCH_RUN_ID": "the-run"})]
    if fails:
        assert isinstance(start, Refused)
        assert start.sentence.startswith("cannot resume from checkpoint-4: it has buffers")
        return
    assert isinstance(start, Start)
    assert start.loading is Loading.UNIVERSAL
    assert start.variable == f"0:{tmp_path / 'universal-4'}"
    clean_up(start)
    assert not (tmp_path / "universal-4").exists()
    assert (tmp_path / "checkpoint-4").is_dir()


def test_a_checkpoint_of_the_trainings_own_is_never_removed(tmp_path: Path) -> None:
    """Only files made for an attempt are removed."""
    folder = plain_checkpoint(tmp_path, 4)
    clean_up(Start(Checkpoint(folder, 4, Engine.DDP, 2)))
    clean_up(Start(None))
    assert folder.is_dir()


def test_what_decides_which_checkpoints_a_plan_can_load() -> None:
    """The enforced engine, else the script's; stage and offload if known."""
    zero2 = as_asked(REQUEST, world(ZERO2), HARDWARE)
    target = target_of(zero2)
    assert (target.engine, target.zero_stage, target.world) == (Engine.DEEPSPEED, 2, 2)
    assert target.is_offloaded is None
    offloaded = target_of(enforced(zero2, offload=Offload.OPTIMIZER))
    assert offloaded.is_offloaded is True
    assert target_of(enforced(zero2, offload=Offload.NONE)).is_offloaded is False
    assert target_of(PLAN).engine is Engine.DDP
    assert target_of(enforced(PLAN, zero_stage=1)).engine is Engine.DEEPSPEED
    unknown = as_asked(REQUEST, world({Fact.FROZEN_PARAMETERS: True}), HARDWARE)
    assert target_of(unknown).engine is None


def test_how_far_an_attempt_came() -> None:
    """The highest step of any rank; 0 before the first, None if uncounted."""
    records = [FailureRecord(rank, 1.0, step=step) for rank, step in enumerate((3, None, 5))]
    assert steps_of(Failed(ATTEMPT, tuple(records))) == 5
    assert steps_of(failed(None)) is None
    assert steps_of(Superseded(ATTEMPT, Seen({}))) == 0
    assert steps_of(Interrupted(ATTEMPT, 15)) is None


def test_the_training_that_failed_last_counts() -> None:
    """A process may have several trainings."""
    first, second = Saves("a", 0), Saves("b", 1)
    assert latest_saves([failed(1, first), failed(2, second)]) == [(second,)]
    assert latest_saves([failed(1, first), failed(2), failed(3, first)]) == [(first,), (first,)]
    assert latest_saves([failed(1), Interrupted(ATTEMPT, 2)]) == []


def test_steps_without_a_checkpoint(tmp_path: Path) -> None:
    """They are lost, and a message reports that."""
    for saves in (None, Saves(str(tmp_path))):
        start = prepare(PLAN, [failed(5, saves)], "run")
        expected = "from the start, after 5 steps: this job has no checkpoint"
        assert start == Start(None, sentence=expected)


def test_what_other_nodes_wrote_to_their_own_disks(tmp_path: Path) -> None:
    """A checkpoint may be there, so this is progress."""
    request = replace(REQUEST, workers=(2, 2))
    plan = replace(PLAN, request=request)
    folder = plain_checkpoint(tmp_path, 4, 4)
    for rank in (2, 3):
        (folder / f"rng_state_{rank}.pth").unlink()
    refused = prepare(plan, [failed(5, Saves(str(tmp_path)), plan)], "run")
    assert isinstance(refused, Refused)
    assert "isn't on node 0" in refused.sentence
