"""A lesson: the proof about a script from one failure and the run that overcame it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct

from ...core.constraint import Cause, CauseKind, Constraint, Term
from ...core.model import is_described_model
from ...core.setting_table import TOO_LARGE
from ...core.settings import Fact, Setting, Value, name_of, value_in_range
from ...core.workload import Earlier, Known, Measured, Origin, Statement, Workload

FORMAT = 1
"""Of the files; a lesson of another format isn't read."""
Bytes = Annotated[int, Meta(ge=0, lt=1 << 53)]
"""Eight PiB, more than any rank has, and exact as a float."""
Words = Annotated[str, Meta(pattern=r"\A[^\n]*\Z", max_length=4096)]
"""A line."""
Named = Annotated[str, Meta(pattern=r"\A[\w.-]*\Z", max_length=255)]
"""A name that stands in a file's name."""


class Forbidden(Struct, frozen=True):
    """Values that failed together.

    Attributes:
        terms: the values of each setting or fact, by its name.
        summary: why, as a phrase.
        reference: where to read more.
    """

    terms: Annotated[dict[str, Annotated[list[Value], Meta(min_length=1)]], Meta(min_length=1)]
    summary: Words
    reference: Words = ""


class Measurement(Struct, frozen=True):
    """Memory that was measured; `Measured` explains each part."""

    settings: dict[str, Value]
    needed: Bytes
    context: Bytes | None
    limit: Bytes

    def measured(self) -> Measured:
        """The measurement, with checked values.

        Raises:
            ValueError: a value isn't one of its setting, or there is no such setting.
        """
        settings = {
            Setting(name): value_in_range(Setting(name), value)
            for name, value in self.settings.items()
        }
        return Measured(settings, self.needed, self.context, self.limit)


class Lesson(Struct, frozen=True):
    """A lesson: a run's proof about a script, one file each.

    Attributes:
        script: name of the script or module.
        failure: id of the known failure that taught it; empty if the workers only showed what
            no file says.
        evidence: how that failure showed itself.
        run: name of the run directory.
        date: when the run ended, in UTC.
        circumstances: digest of all that it depends on, see `earlier_runs.py`.
        versions: versions of the distributions that the known failure names.
        installed: versions of the frameworks that the run trained with; none in older lessons.
        known: settings that were seen in force and facts, by name.
        forbidden: failed values that the catalogue doesn't forbid.
        machine: accelerator, bytes of memory and number of workers, on which memory was measured.
        measured: memory that was measured on it when it ran out.
        trained: memory that was measured on it when the training went well.
        model: the model as a worker described it, if no file does.
    """

    script: Named
    failure: Named
    evidence: Annotated[str, Meta(max_length=1 << 16)]
    run: Words
    date: Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\d[\d:T.+Z-]*\Z", max_length=40)]
    circumstances: Named
    versions: dict[Words, Words] = {}
    installed: dict[Words, Words] = {}
    known: dict[str, Value] = {}
    forbidden: list[Forbidden] = []
    machine: Words = ""
    measured: list[Measurement] = []
    trained: Measurement | None = None
    model: dict[str, Any] | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Checks the model, which has a form but no schema.

        Raises:
            ValueError: it isn't one, or has a number that none has.
        """
        if self.model is not None and not (is_described_model(self.model) and _fits(self.model)):
            raise ValueError("its model isn't one")

    @property
    def file_name(self) -> str:
        """The name of its file: one for each failure in the same circumstances."""
        what = "memory" if self.trained else "seen" if self.is_of_correction else "versions"
        return f"{self.script}-{self.circumstances}-{self.failure or what}.json"

    @property
    def is_of_correction(self) -> bool:
        """Whether the run was corrected: it failed, or was started again before it could."""
        return self.trained is None and bool(self.failure or self.known)

    @property
    def teaches(self) -> bool:
        """Whether it has more than the versions of a successful run."""
        return self.trained is not None or self.is_of_correction

    @property
    def source(self) -> str:
        """Its run, in words."""
        return f"run {self.run} on {self.date[:10]}"

    def statements(self, workload: Workload) -> Iterator[Statement]:
        """Its statements on a workload; they don't override what the user now asks for.

        Facts that belong to a failure count more than what is read.

        Raises:
            ValueError: a value isn't one of its setting or fact.
            KeyError: there is no such setting or fact.
        """
        for raw, plain in self.known.items():
            name = name_of(raw)
            value = value_in_range(name, plain)
            stated = workload.known.get(name)
            is_asked = stated is not None and stated.origin >= Origin.PRESET
            is_proven = isinstance(name, Fact) and self.trained is None
            if is_proven or not (is_asked or name in workload.wanted):
                yield name, Known(value, Origin.LEARNT, self.source)

    def constraints(self) -> Iterator[Constraint]:
        """The constraints that it adds.

        Raises:
            ValueError: a value isn't one of its setting or fact.
            KeyError: there is no such setting or fact.
        """
        for forbidden in self.forbidden:
            terms = tuple(
                Term(name, frozenset(value_in_range(name, value) for value in values))
                for name, values in ((name_of(raw), each) for raw, each in forbidden.terms.items())
            )
            summary = f"{forbidden.summary} ({self.source})"
            cause = Cause(CauseKind.LESSON, self.failure, summary, forbidden.reference)
            yield Constraint(terms, cause)


def latest_run(lessons: Iterable[Lesson]) -> Earlier | None:
    """The latest run whose versions are on record; None for none."""
    with_versions = (lesson for lesson in lessons if lesson.installed)
    latest = max(with_versions, key=attrgetter("date"), default=None)
    return None if latest is None else Earlier(latest.installed, latest.source)


def _fits(content: object) -> bool:
    """Whether no whole number in a document is too large."""
    if isinstance(content, dict):
        return all(map(_fits, content.values()))
    if isinstance(content, list):
        return all(map(_fits, content))
    return not isinstance(content, int) or -TOO_LARGE < content < TOO_LARGE
