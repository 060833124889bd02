"""The lessons of a run: for the next one, and those that it has disproved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from ...catalogue.entry import Finding, Kind
from ...core.constraint import CauseKind, Constraint
from ...core.errors import LaunchError, file_and_reason
from ...core.hardware import Hardware
from ...core.plain_json import plain
from ...core.settings import Fact, Value
from ...core.workload import Measured, Origin, Workload
from ...diagnosis.attempt import Succeeded, Superseded
from ...diagnosis.new_constraints import trained_of
from ...diagnosis.observed import with_seen
from ...planning.estimates.estimate import ranks_of
from ...planning.estimates.memory import calibrated_sizes
from ..decision import RunState
from . import store
from .earlier_runs import circumstances, machine, script_name
from .lesson import Forbidden, Lesson, Measurement

LONGEST = 300
"""Characters of a failure's message that are kept as evidence."""
SHARED_DEVICE = re.compile(r"\bProcess \d+ has [\d.]+ \wiB memory in use")
"""Printed by CUDACachingAllocator.cpp if other processes hold a part of the device: they may be
gone the next time."""


def teaches(state: RunState) -> bool:
    """Whether a run has succeeded thanks to what it has learnt."""
    return isinstance(state.last, Succeeded) and any(
        isinstance(outcome, Superseded) or _root(state, outcome.attempt.number)
        for outcome in state.outcomes
    )


def lessons_of(state: RunState, before: Workload, hardware: Hardware, run: str) -> Iterator[Lesson]:
    """The lessons of a run that succeeded after corrections, one for each failure.

    The workload `before` is the one known without any run, `run` the name of the run directory.

    Raises:
        LaunchError: the script can't be read any more.
    """
    known = {
        name.value: known.value
        for name, known in state.workload.known.items()
        if known.origin in (Origin.OBSERVED, Origin.LESSON)
    }
    general = msgspec.structs.replace(_blank(state, before, run), known=known)
    failed = [
        (outcome.attempt.number, root)
        for outcome in state.outcomes
        if (root := _root(state, outcome.attempt.number))
    ]
    if not failed:
        yield general
        return
    until = [number for number, _ in failed[1:]] + [len(state.outcomes)]
    for (number, root), end in zip(failed, until, strict=True):
        assert root.entry is not None, "only an explained failure teaches"
        lesson = msgspec.structs.replace(
            general,
            failure=root.entry.id,
            evidence=f"{root.record.exception}: {root.record.message}"[:LONGEST].strip(": "),
            versions={name: before.versions.get(name, "") for name in root.entry.when},
            forbidden=[*_forbidden(state.constraints, range(number, end))],
        )
        if root.entry.kind is Kind.MEMORY:
            measured = [*map(_measurement, state.workload.measured)]
            lesson = msgspec.structs.replace(
                _on_machine(lesson, state, before, hardware), measured=measured
            )
        yield lesson


def success_of(state: RunState, before: Workload, hardware: Hardware, run: str) -> Lesson | None:
    """The lesson of a successful run: versions and, for the next estimate, its memory.

    The workers' facts are kept with the memory, so that the next plan needn't wait for them. None
    if the run has failed, or if a correction's lesson has the versions already.
    Arguments and errors are those of `lessons_of`.
    """
    if not isinstance(state.last, Succeeded) or state.request.is_program:
        return None
    workload = with_seen(state.workload, state.last.attempt, state.last.seen)
    trained = trained_of(state.last, workload, hardware)
    ranks = ranks_of(state.request, hardware)
    blank = _blank(state, before, run)
    if trained is None or calibrated_sizes(workload, hardware, ranks) is None:
        return None if teaches(state) else blank
    known = dict(_new_facts(state.last, workload, before))
    lesson = _on_machine(blank, state, before, hardware)
    return msgspec.structs.replace(lesson, trained=_measurement(trained), known=known)


def _new_facts(
    last: Succeeded, workload: Workload, before: Workload
) -> Iterator[tuple[str, Value]]:
    """New facts from workers; only the length if the plan changed settings before they asked."""
    asked = {name for name, _ in last.seen.asked}
    is_all = set(last.attempt.plan.overrides) <= asked
    for name, known in workload.known.items():
        earlier = before.known.get(name)
        is_new = earlier is None or earlier.value != known.value
        is_reported = known.origin in (Origin.OBSERVED, Origin.LEARNT)
        if is_reported and is_new and (is_all or name is Fact.SEQUENCE_LENGTH):
            yield name.value, known.value


def _blank(state: RunState, before: Workload, run: str) -> Lesson:
    """A lesson without content."""
    return Lesson(
        script=script_name(state.request),
        failure="",
        evidence="",
        run=run,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        circumstances=circumstances(state.request, before),
        installed=dict(before.versions),
    )


def _on_machine(lesson: Lesson, state: RunState, before: Workload, hardware: Hardware) -> Lesson:
    """The lesson, for measurements: with the machine, and the model if no file describes it."""
    seen = next((outcome.seen.model for outcome in state.outcomes if outcome.seen.model), None)
    return msgspec.structs.replace(
        lesson,
        machine=machine(state.request, hardware),
        model=plain(seen) if seen is not None and before.model is None else None,
    )


def _root(state: RunState, number: int) -> Finding | None:
    """The failure of an attempt if another plan always cures it, else None."""
    root = state.findings.get(number)
    if root is None or root.entry is None or SHARED_DEVICE.search(root.record.message):
        return None
    return root if root.entry.kind in (Kind.PRESET, Kind.MEMORY) else None


def _forbidden(constraints: Sequence[Constraint], numbers: range) -> Iterator[Forbidden]:
    """Constraints that a failure's attempt and its corrections added to the catalogue."""
    for constraint in constraints:
        cause = constraint.cause
        if cause.kind is CauseKind.ATTEMPT and int(cause.name) - 1 in numbers:
            terms = {term.name.value: sorted(term.values, key=str) for term in constraint.terms}
            summary = cause.summary.replace(f"attempt {cause.name}", "an attempt")
            yield Forbidden(terms, summary, cause.reference)


def _measurement(measured: Measured) -> Measurement:
    settings = {name.value: value for name, value in measured.settings.items()}
    return Measurement(settings, measured.needed, measured.context, measured.limit)


def keep(
    state: RunState, before: Workload, hardware: Hardware, run: str, environment: Mapping[str, str]
) -> Iterator[str]:
    """Keeps the lessons of a run; yields messages on that."""
    folders = store.folders(environment)
    if not folders:
        return
    folder = folders[0].path
    with suppress(LaunchError, OSError):  # nothing is wrong without it
        if (success := success_of(state, before, hardware, run)) is not None:
            store.keep(success, folder)
    if not teaches(state):
        return
    try:
        lessons = [*lessons_of(state, before, hardware, run)]
    except (LaunchError, OSError) as error:
        yield f"this run's lessons aren't saved: {file_and_reason(error)}"
        return
    refused = [kept for lesson in lessons if (kept := store.keep(lesson, folder))]
    if refused:
        yield refused[0].sentence
    else:
        script = state.request.script
        yield f"learnt for the next launch of {script}; `safe-launch lessons` lists it"


def forget_disproved(state: RunState, lessons: Sequence[store.Kept]) -> Iterator[str]:
    """Removes lessons without which a run has succeeded at once; yields messages on that."""
    if isinstance(state.last, Succeeded) and len(state.outcomes) == 1:
        for kept in lessons:
            refused = store.forget(kept.path)
            name = kept.path.stem
            yield refused.sentence if refused else f"deleted, as the run trains without it: {name}"
