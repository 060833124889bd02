"""Prepares the next attempt's checkpoint, or refuses if progress would be lost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from shutil import rmtree

from ..checkpoints import resume_point, save_folders, universal
from ..checkpoints.checkpoint import AnyCheckpoint, Saves, newest_first
from ..checkpoints.resume_point import Loading, Start, Target
from ..core.choices import Engine, Offload
from ..core.errors import Refused, file_and_reason
from ..core.settings import Setting
from ..diagnosis.attempt import Failed, Outcome, Superseded
from ..planning.plan import Plan
from ..system import orphans

AGAIN = "the script's trainings before the failed one are repeated"


def prepare(following: Plan, outcomes: Sequence[Outcome], run_id: str) -> Start | Refused:
    """Prepares on disk the start of the attempt after these outcomes.

    No worker of the job runs meanwhile; processes started here carry the run's mark, like workers.
    """
    start, last = _prepared(following, outcomes, run_id), outcomes[-1]
    has_trained = isinstance(last, Failed) and any(record.has_trained for record in last.records)
    if isinstance(start, Refused) or not (start.training or has_trained):
        return start
    return replace(start, sentence="; ".join(filter(None, [start.sentence, AGAIN])))


def _prepared(following: Plan, outcomes: Sequence[Outcome], run_id: str) -> Start | Refused:
    """Prepares the start of the training that failed last."""
    steps = [steps_of(outcome) for outcome in outcomes]
    if resume_point.is_stuck(steps):
        return Refused(f"{resume_point.PATIENCE} attempts in a row have made no new step")
    done = max((step for step in steps if step is not None), default=None)
    saves = latest_saves(outcomes)
    if not saves and not done:
        return Start(None)
    for places in saves:
        save_folders.gather(places)
    checkpoints = _checkpoints([first for first, *_ in saves], outcomes)
    target = target_of(following)
    may_restart = following.request.limits.allow_restart
    while True:
        start = resume_point.next_start(checkpoints, done, target, may_restart=may_restart)
        if isinstance(start, Refused):
            return start
        start = replace(start, training=saves[-1][0].number if saves else 0)
        if start.checkpoint is None or start.loading is not Loading.UNIVERSAL:
            return _move_newer(start)
        made = universal.convert(start.checkpoint, {orphans.VARIABLE: run_id})
        if not isinstance(made, Refused):
            return _move_newer(replace(start, checkpoint=replace(start.checkpoint, folder=made)))
        checkpoints = resume_point.without(checkpoints, start.checkpoint, made.sentence)


def clean_up(start: Start) -> None:
    """Removes the universal checkpoint that was made for an attempt that has ended.

    The checkpoint that it was converted from is kept.
    """
    if start.checkpoint is not None and start.loading is Loading.UNIVERSAL:
        rmtree(start.checkpoint.folder, ignore_errors=True)


def latest_saves(outcomes: Sequence[Outcome]) -> list[tuple[Saves, ...]]:
    """Save folders of the last failed training in each attempt that reached it (`Seen.saves`)."""
    saves = [
        outcome.seen.saves
        for outcome in outcomes
        if isinstance(outcome, Failed | Superseded) and outcome.seen.saves
    ]
    return [places for places in saves if places[0].number == saves[-1][0].number]


def _checkpoints(saves: Sequence[Saves], outcomes: Sequence[Outcome]) -> tuple[AnyCheckpoint, ...]:
    """The job's checkpoints, without those that existed before its first attempt."""
    requests = [outcome.attempt.plan.request for outcome in outcomes]
    worlds = {request.world for request in requests}
    local = requests[-1].nodes[0] if len(requests[0].nodes) > 1 else None
    first = {place.output_dir: place for place in reversed(saves)}
    by_folder = (save_folders.find_all(place, worlds, local) for place in first.values())
    return newest_first(itertools.chain.from_iterable(by_folder))


def _move_newer(start: Start) -> Start | Refused:
    """Moves later checkpoints out of the way; returns the start, with that in its sentence."""
    try:
        places = save_folders.set_aside([checkpoint.folder for checkpoint in start.aside])
    except OSError as error:
        return Refused(f"the checkpoints can't be moved aside: {file_and_reason(error)}")
    if not places:
        return start
    where = ", ".join(map(str, places))
    names = ", ".join(sorted(checkpoint.folder.name for checkpoint in start.aside))
    return replace(start, sentence=f"{start.sentence}; {names} moved to {where}")


def target_of(plan: Plan) -> Target:
    """The part of a plan that decides which checkpoints it can load."""
    stage = plan.preset.zero_stage
    enforced = Setting.ZERO_STAGE in plan.overrides or bool(stage)
    engine = Engine.DEEPSPEED if enforced else plan.workload.engine
    offload = plan.preset.offload
    return Target(
        engine, stage, plan.request.world, None if offload is None else offload is not Offload.NONE
    )


def steps_of(outcome: Outcome) -> int | None:
    """The job's optimizer steps at the end of an attempt; None if unknown."""
    if isinstance(outcome, Superseded):
        return 0
    records = outcome.records if isinstance(outcome, Failed) else ()
    return max((record.step for record in records if record.step is not None), default=None)
