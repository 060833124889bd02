"""Makes ready what the next attempt goes on from, or says why it would throw progress away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shutil import rmtree

from . import checkpoints, leftovers, progress, universal
from .attempt import Failed, Outcome, Superseded
from .plan import Plan
from .progress import Loading, Refused, Start
from .saved import Found, Saves


def prepared(following: Plan, outcomes: Sequence[Outcome], run_id: str) -> Start | Refused:
    """Where the attempt after these begins; all that it needs on the disk is done.

    No worker of the job runs meanwhile; what this starts has the run's mark, as they have.
    """
    steps = [progress.steps_of(outcome) for outcome in outcomes]
    if progress.is_stuck(steps):
        return Refused(f"{progress.PATIENCE} attempts in a row have made no new step")
    done = max((one for one in steps if one is not None), default=None)
    saves = _saves(outcomes)
    found = Found() if saves is None else _found(saves, outcomes)
    if saves is None and not done:
        return Start(None)
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
        return _with_room(start)


def clean_up(start: Start) -> None:
    """Removes the universal checkpoint that was made for an attempt that is over.

    What it was made of is still there.
    """
    if start.saved is not None and start.loading is Loading.UNIVERSAL:
        rmtree(start.saved.folder, ignore_errors=True)


def _saves(outcomes: Sequence[Outcome]) -> Saves | None:
    """Where the job saves, as the last attempt told, and what was there before the first one."""
    told = [
        outcome.seen.saves
        for outcome in outcomes
        if isinstance(outcome, Failed | Superseded) and outcome.seen.saves is not None
    ]
    if not told:
        return None
    return next(one for one in told if one.output_dir == told[-1].output_dir)


def _found(saves: Saves, outcomes: Sequence[Outcome]) -> Found:
    requests = [outcome.attempt.plan.request for outcome in outcomes]
    local = requests[-1].nodes[0] if len(requests[0].nodes) > 1 else None
    return checkpoints.found(saves, {request.world for request in requests}, local)


def _with_room(start: Start) -> Start | Refused:
    """The same, with the checkpoints out of the way that come after it."""
    try:
        place = checkpoints.set_aside([one.folder for one in start.aside])
    except OSError as error:
        return Refused(f"the checkpoints can't be moved aside: {error}")
    if place is None:
        return start
    names = ", ".join(sorted(one.folder.name for one in start.aside))
    return replace(start, sentence=f"{start.sentence}; {names} moved to {place}")
