"""Makes ready what the next attempt goes on from, or says why it would throw progress away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shutil import rmtree

from . import checkpoints, leftovers, progress, universal
from .attempt import Failed, Outcome, Superseded
from .plan import Plan
from .progress import Loading, Refused, Start
from .saved import Found, Saves, joined


def prepared(following: Plan, outcomes: Sequence[Outcome], run_id: str) -> Start | Refused:
    """Where the attempt after these begins; all that it needs on the disk is done.

    No worker of the job runs meanwhile; what this starts has the run's mark, as they have.
    """
    steps = [progress.steps_of(outcome) for outcome in outcomes]
    if progress.is_stuck(steps):
        return Refused(f"{progress.PATIENCE} attempts in a row have made no new step")
    done = max((one for one in steps if one is not None), default=None)
    saves = _saves(outcomes)
    if not saves and not done:
        return Start(None)
    found = _found(saves, outcomes)
    while True:
        start = progress.next_start(
            found, done, progress.target_of(following), following.request.allow_restart
        )
        if isinstance(start, Refused):
            return start
        if start.saved is not None and start.loading is Loading.UNIVERSAL:
            made = universal.convert(start.saved, {leftovers.VARIABLE: run_id})
            if isinstance(made, str):
                found = progress.unusable(found, start.saved, made)
                continue
            start = replace(start, saved=replace(start.saved, folder=made))
        return _with_room(replace(start, training=saves[-1].number if saves else 0))


def clean_up(start: Start) -> None:
    """Removes the universal checkpoint that was made for an attempt that is over.

    What it was made of is still there.
    """
    if start.saved is not None and start.loading is Loading.UNIVERSAL:
        rmtree(start.saved.folder, ignore_errors=True)


def _saves(outcomes: Sequence[Outcome]) -> list[Saves]:
    """Where the training saves that failed last, as each attempt told that came to it."""
    told = [
        outcome.seen.saves
        for outcome in outcomes
        if isinstance(outcome, Failed | Superseded) and outcome.seen.saves is not None
    ]
    return [one for one in told if one.number == told[-1].number]


def _found(saves: Sequence[Saves], outcomes: Sequence[Outcome]) -> Found:
    """What the job has saved, less what was there before its first attempt."""
    requests = [outcome.attempt.plan.request for outcome in outcomes]
    worlds = {request.world for request in requests}
    local = requests[-1].nodes[0] if len(requests[0].nodes) > 1 else None
    first = {one.output_dir: one for one in reversed(saves)}
    return joined([checkpoints.found(one, worlds, local) for one in first.values()])


def _with_room(start: Start) -> Start | Refused:
    """The same, with the checkpoints out of the way that come after it."""
    try:
        places = checkpoints.set_aside([one.folder for one in start.aside])
    except OSError as error:
        return Refused(f"the checkpoints can't be moved aside: {error}")
    if not places:
        return start
    where = ", ".join(map(str, places))
    names = ", ".join(sorted(one.folder.name for one in start.aside))
    return replace(start, sentence=f"{start.sentence}; {names} moved to {where}")
