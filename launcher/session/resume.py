"""Makes ready what the next attempt goes on from, or says why it would throw progress away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shutil import rmtree

from ..catalogue.entry import Finding
from ..checkpoints import discovery, resume_point, universal
from ..checkpoints.checkpoint import Found, Saves, joined
from ..checkpoints.resume_point import Loading, Start, Target
from ..core.refused import Refused
from ..core.request import Fix
from ..core.settings import Engine, Offload, Setting
from ..diagnosis.attempt import Failed, Outcome, Superseded
from ..planning.plan import Plan
from ..system import orphans, terminal
from . import retries

RELAUNCHES = {Fix.AUTO: 6, Fix.ONCE: 1, Fix.SUGGEST: 0}
"""How often the workers may be launched anew with a corrected plan."""


def beginning(
    following: Plan, outcomes: Sequence[Outcome], restarts: int, run_id: str
) -> Start | Refused:
    """Where a corrected attempt begins, if one is allowed; `restarts` corrected nothing."""
    fix = following.request.limits.fix
    if len(outcomes) - restarts > RELAUNCHES[fix]:
        return Refused(f"--fix {fix} allows {RELAUNCHES[fix]}")
    return prepared(following, outcomes, run_id)


def again(
    plan: Plan,
    outcomes: Sequence[Outcome],
    findings: Mapping[int, Finding],
    restarts: int,
    run_id: str,
) -> Start | None:
    """Where another attempt with the same plan begins, if --max-restarts asks for one.

    Args:
        plan: the last attempt's.
        outcomes: of all attempts.
        findings: the root cause of each that failed, by its number.
        restarts: how often this has been done.
        run_id: the run's id.
    """
    last = outcomes[-1]
    if not isinstance(last, Failed) or last.lost:
        return None
    roots = [findings[number] for number in sorted(findings)]
    is_wanted, words = retries.verdict(plan.request.limits.max_restarts, restarts, roots)
    start = prepared(plan, outcomes, run_id) if is_wanted else None
    if isinstance(start, Refused):
        words, start = f"not started again: {start.sentence}", None
    elif start is not None and start.sentence:
        words = f"{words}; {start.sentence}"
    if words:
        terminal.say(words)
    return start


def prepared(following: Plan, outcomes: Sequence[Outcome], run_id: str) -> Start | Refused:
    """Where the attempt after these begins; all that it needs on the disk is done.

    No worker of the job runs meanwhile; what this starts has the run's mark, as they have.
    """
    steps = [steps_of(outcome) for outcome in outcomes]
    if resume_point.is_stuck(steps):
        return Refused(f"{resume_point.PATIENCE} attempts in a row have made no new step")
    done = max((one for one in steps if one is not None), default=None)
    saves = _saves(outcomes)
    if not saves and not done:
        return Start(None)
    found = _found(saves, outcomes)
    while True:
        start = resume_point.next_start(
            found, done, target_of(following), following.request.limits.allow_restart
        )
        if isinstance(start, Refused):
            return start
        if start.saved is not None and start.loading is Loading.UNIVERSAL:
            made = universal.convert(start.saved, {orphans.VARIABLE: run_id})
            if isinstance(made, str):
                found = resume_point.unusable(found, start.saved, made)
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
    return joined([discovery.found(one, worlds, local) for one in first.values()])


def _with_room(start: Start) -> Start | Refused:
    """The same, with the checkpoints out of the way that come after it."""
    try:
        places = discovery.set_aside([one.folder for one in start.aside])
    except OSError as error:
        return Refused(f"the checkpoints can't be moved aside: {error}")
    if not places:
        return start
    where = ", ".join(map(str, places))
    names = ", ".join(sorted(one.folder.name for one in start.aside))
    return replace(start, sentence=f"{start.sentence}; {names} moved to {where}")


def target_of(plan: Plan) -> Target:
    """What of a plan decides which checkpoints it can load."""
    stage = plan.preset.zero_stage
    enforced = Setting.ZERO_STAGE in plan.overrides or bool(stage)
    engine = Engine.DEEPSPEED if enforced else plan.workload.engine
    offload = plan.preset.offload
    return Target(
        engine, stage, plan.request.world, None if offload is None else offload is not Offload.NONE
    )


def steps_of(outcome: Outcome) -> int | None:
    """The optimizer steps that the job had done when an attempt ended; None where unknown."""
    if isinstance(outcome, Superseded):
        return 0
    records = outcome.records if isinstance(outcome, Failed) else ()
    return max((one.step for one in records if one.step is not None), default=None)
