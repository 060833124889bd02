"""Decides, on node 0, the answers to the workers' questions at boundaries.

The first rank that asks decides the answer; every other rank that comes the same way gets the same,
and no rank ever waits for another. If a change doesn't reach every rank, the attempt is superseded:
the next one has the change from its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.choices import Checkpointing, Framework
from ..core.errors import Refused
from ..core.request import Fix
from ..core.settings import Fact, Name, Setting, Value, name_of
from ..core.workload import Statement
from ..diagnosis.attempt import Attempt, Seen
from ..diagnosis.new_constraints import changed_since, is_hopeless
from ..diagnosis.observed import statements, tried_settings, with_seen
from ..evidence.worker_messages import Answer, Ask, Boundary
from ..planning.plan import NoPlan, Plan
from ..planning.planner import refused_by_strict
from ..planning.search import Rules
from ..progress.board import RankProgress
from ..report import plan_table, summary
from .console import Reporter
from .judgement import (
    LOADING,
    better_plan,
    expected,
    is_mistaken,
    is_unsure,
    may_continue,
    needs_probe,
    where_of,
)

REACH = 30.0
"""Seconds within which every rank has to reach the boundary of a change."""
LOOK = 1.0
"""Seconds between two looks at the ranks, while a change hasn't reached all of them."""
ORDER = tuple(Boundary)
ONCE_IS_ENOUGH = (Fact.BLOCK_RUNS_TWICE,)
"""Facts that stay true if another rank reports otherwise."""


@dataclass(slots=True)
class FirstAnswer:
    """An answer, with the first rank's question, its time by the monotonic clock, and its ranks."""

    question: Ask
    answer: Answer
    at: float
    ranks: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Settling:
    """The answers of one attempt, and whether it may continue.

    Attributes:
        attempt: the attempt, with the plan in force.
        rules: the rules of its plan.
        unreached: keys of answers that didn't reach every rank in an earlier attempt of this run:
            nothing is changed there any more.
        informed: called with the plan in force whenever workers reveal more of the training.
        asked: the statements of workers' questions, by name.
        framework: the owner of the training loop, according to the workers.
        shape: the model as the first worker described it.
        before: the attempt before a kind of boundary was first settled.
        answers: the answers so far, by key.
        is_missed: a change hasn't reached every rank.
    """

    attempt: Attempt
    rules: Rules
    unreached: set[str]
    reporter: Reporter
    informed: Callable[[Plan], None]
    asked: dict[str, Statement] = field(default_factory=dict)
    framework: Framework | None = None
    shape: Mapping[str, Any] | None = None
    before: dict[Boundary, Attempt] = field(default_factory=dict)
    answers: dict[str, FirstAnswer] = field(default_factory=dict)
    is_missed: bool = False
    _allowed: dict[object, bool] = field(default_factory=dict)
    _suggested: Mapping[str, Value] = field(default_factory=dict)

    def seen(self, observed: Mapping[str, Value], model: Mapping[str, Any] | None) -> Seen:
        """The attempt's observations so far."""
        return Seen(
            observed,
            model or self.shape,
            asked=tuple(self.asked.values()),
            framework=self.framework,
        )

    def allows(self, observed: Mapping[str, Value], model: Mapping[str, Any] | None) -> bool:
        """Whether the attempt may continue with the observed values; under `suggest` always."""
        if self.attempt.plan.request.limits.fix is Fix.SUGGEST:
            return True
        if self.is_missed:
            return False
        is_shapeless = model is None and self.shape is None
        reported = frozenset(observed.items()), frozenset(self.asked.values())
        key = reported, is_shapeless, len(self.answers)
        if key not in self._allowed:  # a search is slow, and all workers report the same
            seen = self.seen(observed, model)
            workload = with_seen(self.attempt.plan.workload, self.attempt, seen)
            self.informed(replace(self.attempt.plan, workload=workload))
            self._allowed[key] = may_continue(self.attempt, workload, self.rules)
        return self._allowed[key]

    def replaced(self) -> Path | Refused | None:
        """The folder of the attempt that this one corrects; why it can't be compared; or None."""
        attempt = self.attempt
        if attempt.before is None:
            first = "no attempt without the changes has made a step"
            return Refused(first) if attempt.plan.overrides else None
        if any(change.constraint.cause.is_silent for change in attempt.plan.changes):
            return Refused("the requested settings are known to train wrongly")
        changed = changed_since(attempt.before, attempt)
        if Setting.PRECISION in changed:
            return Refused("the precision differs")
        return attempt.before.folder if changed else None

    def answer(
        self,
        rank: int,
        question: Ask,
        observed: Mapping[str, Value],
        model: Mapping[str, Any] | None,
    ) -> Answer | None:
        """The answer to a rank at a boundary; None if the attempt ends instead."""
        if not self.attempt.plan.request.limits.asks:
            return Answer(question.key)
        known = self.answers.get(question.key)
        self._look_for_passed(rank, question)
        if known is None:
            answer = self._decided(question, observed, model)
            if answer is not None:
                self.answers[question.key] = FirstAnswer(question, answer, time.monotonic(), {rank})
            return answer
        known.ranks.add(rank)
        differing = [
            name
            for name in known.answer.overrides
            if question.facts.get(name) != known.question.facts.get(name)
        ]
        if differing:
            self._miss(question.key, f"rank {rank} has a different {differing[0]}")
            return None
        return known.answer

    def note_unanswered(self, rank: int, key: str) -> None:
        """Notes that a rank got no answer in time, and trains with its own settings."""
        self.reporter.note(
            f"rank {rank} got no answer in time when it asked for its settings, and stops asking"
        )
        for other, first in self.answers.items():
            if first.answer.overrides and (rank not in first.ranks or other == key):
                self._miss(other, f"rank {rank} continued with the requested settings")

    def look(self, rows: Iterable[RankProgress]) -> None:
        """Looks for ranks that passed a boundary without the others' changes there."""
        steps = {row.rank: row.step or 0 for row in rows}
        everyone = set(range(self.attempt.plan.request.world))
        for key, first in self._changing():
            missing = everyone - first.ranks
            passed = sorted(rank for rank in missing if steps.get(rank, 0) > 0)
            if passed and not first.question.step:  # else they may be the earlier training's
                self._miss(key, f"rank {passed[0]} trains without it")
            elif missing and time.monotonic() - first.at > REACH:
                self._miss(key, f"rank {min(missing)} hasn't reached it in {REACH:.0f} s")

    def pause(self) -> float | None:
        """Seconds until the next look; None if every change has reached every rank."""
        return LOOK if self._changing() else None

    def _changing(self) -> list[tuple[str, FirstAnswer]]:
        """The answers that change something and haven't reached every rank."""
        world = self.attempt.plan.request.world
        return [
            (key, first)
            for key, first in self.answers.items()
            if first.answer.overrides and len(first.ranks) < world
        ]

    def _look_for_passed(self, rank: int, question: Ask) -> None:
        """Finds a boundary with a change that this rank has passed without it."""
        for key, first in self._changing():
            place = ORDER.index(first.question.boundary)
            if rank not in first.ranks and place < ORDER.index(question.boundary):
                self._miss(key, f"rank {rank} took another path")

    def _miss(self, key: str, why: str) -> None:
        """Ends the attempt, as a change doesn't reach every rank."""
        if not self.is_missed:
            place = self.answers[key].question
            self.reporter.note(
                f"the settings changed at {where_of(place)} don't reach every rank: {why}"
            )
        self.is_missed = True
        self.unreached.add(key)

    def _decided(
        self, question: Ask, observed: Mapping[str, Value], model: Mapping[str, Any] | None
    ) -> Answer | None:
        """The answer to the first rank at a boundary; None if the attempt ends instead.

        The basis is the attempt before the same kind of boundary was settled: another object of
        that kind lacks the settings of the first. A later training of the script is judged by
        itself, and never ends the attempt, as that would lose the steps before it. Neither does a
        model that isn't made yet: expectations of it count for this answer alone.
        """
        where, is_later = where_of(question), bool(question.step)
        is_open = question.boundary in LOADING
        base = self.before.get(question.boundary, self.attempt)
        facts = {name_of(name): value for name, value in question.facts.items()}
        # A setting that has been changed before is the plan's, not what was asked for.
        stated = [
            (name, known)
            for name, known in statements(base.plan.workload, facts, where)
            if not (isinstance(name, Setting) and base.plan.overrides.get(name) == known.value)
        ]
        if not is_later:
            self.asked |= {
                str(name): (name, known)
                for name, known in stated
                if not (name in ONCE_IS_ENOUGH and self._is_known(name))
            }
            self.shape = self.shape or (None if is_open else question.shape)
        if question.framework:
            self.framework = Framework(question.framework)
        if question.key in self.unreached:
            return Answer(question.key)
        seen = self.seen(observed, model or (question.shape if is_open else None))
        workload = with_seen(base.plan.workload, base, seen).informed(stated)
        if is_open:
            workload = workload.informed(expected(workload, where))
        else:
            self.informed(replace(base.plan, workload=workload))
        tried, asked = tried_settings(base, workload), workload.requested
        fixed = {name: value for name, value in tried.items() if name not in question.changeable}
        is_wrong, better = is_mistaken(base, stated), None
        if is_wrong or is_hopeless(base, workload, self.rules):
            better = better_plan(base, workload, self.rules, fixed)
        if better is None or (not is_wrong and is_unsure(base, workload, self.rules, better)):
            return Answer(question.key, probes=needs_probe(base, workload, self.rules, question))
        request = base.plan.request
        is_suggested = request.limits.fix is Fix.SUGGEST
        ends_nothing = is_suggested or is_later or is_open
        if isinstance(better, NoPlan) or refused_by_strict(request, better) is not None:
            return Answer(question.key) if ends_nothing else None
        after = {**asked, **better.overrides}
        name = Setting.GRADIENT_CHECKPOINTING
        if question.boundary is Boundary.CHECKPOINT and after.get(name) == Checkpointing.OFF:
            # Other settings, which can't be changed there any more, cost less memory.
            return Answer(question.key) if ends_nothing else None
        overrides = {str(name): value for name, value in after.items() if tried.get(name) != value}
        changes = [change for change in better.changes if change.setting in overrides]
        if is_suggested:
            if overrides != self._suggested:
                self.reporter.settled(where, better, changes, is_made=False)
            self._suggested = overrides
            return Answer(question.key)
        self.reporter.settled(where, better, changes, is_made=True)
        if not is_later:
            self.before.setdefault(question.boundary, base)
            informed = base.plan.workload.informed(stated) if is_open else better.workload
            self.attempt = replace(base, plan=replace(better, workload=informed))
            document = plan_table.document(request, workload, better.hardware, better)
            summary.write_or_warn(base.folder / "plan.json", document)
        replaced = {str(name): value for name, value in asked.items() if str(name) in overrides}
        return Answer(question.key, overrides, replaced)

    def _is_known(self, name: Name) -> bool:
        """Whether a rank has reported a fact as true."""
        known = self.asked.get(str(name))
        return known is not None and bool(known[1].value)
