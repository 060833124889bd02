"""Lessons of earlier runs, applied to a script's first plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...catalogue.catalogue import Catalogue
from ...core.constraint import Constraint
from ...core.errors import LaunchError, Refused, file_and_reason, reason_of
from ...core.hardware import Hardware
from ...core.request import LaunchRequest
from ...core.workload import Origin, Workload
from ...diagnosis.observed import with_model
from ...planning.budget import gib
from . import store
from .circumstances import circumstances, machine, script_name
from .lesson import Lesson, latest_run

UNUSABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, LaunchError)
"""Errors from a lesson's values that its schema allows: a model's configuration has none."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """Knowledge from earlier runs.

    Attributes:
        workload: the workload with that knowledge.
        constraints: further constraints.
        lessons: those that hold, with their files.
        notes: messages on the others.
    """

    workload: Workload
    constraints: tuple[Constraint, ...] = ()
    lessons: tuple[store.Kept, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether an earlier run has failed, or was started again before it could."""
        return any(kept.lesson.is_of_correction for kept in self.lessons)

    def sentences(self, catalogue: Catalogue, *, whole: bool = True) -> Iterator[str]:
        """A sentence for each lesson that is applied; unless `whole`, none of measurements."""
        for kept in self.lessons:
            lesson = kept.lesson
            if lesson.trained is not None and not whole:
                continue
            if lesson.trained is not None:
                subject = f"a rank needed {gib(lesson.trained.needed)} GiB of memory"
            elif (entry := catalogue.named(lesson.failure)) is not None:
                subject = entry.subject
            else:
                subject = "the workers' reports before their first step"
            failure = f" [{lesson.failure}]" if lesson.failure else ""
            by = f" by {kept.owner}" if kept.owner else ""
            yield f"learnt in {lesson.source}{by}: {subject}{failure}"


def learnt(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    catalogue: Catalogue,
    environment: Mapping[str, str],
) -> Learnt:
    """The lessons of a script's earlier runs that still hold.

    Raises:
        LaunchError: the script can't be read.
    """
    folders, script = store.folders(environment), script_name(request)
    if request.is_program or not any(store.find(folders, script)):
        return Learnt(workload)
    try:
        digest = circumstances(request, workload)
    except OSError as error:
        note = f"its lessons aren't looked up: {file_and_reason(error)}"
        return Learnt(workload, notes=(note,))
    matches = [*store.find(folders, script, digest)]
    earlier = latest_run(kept.lesson for kept in matches if isinstance(kept, store.Kept))
    result = Learnt(replace(workload, earlier=earlier))
    for match in matches:
        if isinstance(match, Refused):
            result = replace(result, notes=(*result.notes, f"ignored: {match.sentence}"))
        elif match.lesson.teaches and _holds(match.lesson, catalogue, workload):
            result = _with_lesson(result, match, machine(request, hardware))
    return result


def _holds(lesson: Lesson, catalogue: Catalogue, workload: Workload) -> bool:
    """Whether its known failure still concerns the versions that are installed."""
    versions = {name: workload.versions.get(name, "") for name in lesson.versions}
    return lesson.versions == versions and (
        not lesson.failure or catalogue.named(lesson.failure) is not None
    )


def _with_lesson(result: Learnt, kept: store.Kept, machine: str) -> Learnt:
    """Knowledge with a further lesson added; its measurements hold on the same machine alone."""
    lesson, workload = kept.lesson, result.workload
    if lesson.machine not in ("", machine):
        return result
    try:
        statements, constraints = [*lesson.statements(workload)], [*lesson.constraints()]
        measurements = [measurement.measured() for measurement in lesson.measured]
        measured = [entry for entry in measurements if entry not in workload.measured]
        trained = workload.trained if lesson.trained is None else lesson.trained.measured()
        if lesson.model is not None and workload.model is None:
            workload = with_model(workload, lesson.model, lesson.source, Origin.LEARNT)
    except UNUSABLE as error:
        note = f"{kept.path} is ignored: this version doesn't support it: {reason_of(error)}"
        return replace(result, notes=(*result.notes, note))
    workload = workload.informed(statements)
    return Learnt(
        replace(workload, measured=(*workload.measured, *measured), trained=trained),
        tuple(dict.fromkeys((*result.constraints, *constraints))),
        (*result.lessons, kept),
        result.notes,
    )
