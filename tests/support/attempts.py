"""Runs the loop without processes: attempts that end as a test says, and what the user is told."""
# ruff: noqa: ARG002 - a reporter is told more than the tests look at

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from safe_launch.catalogue.entry import Diagnosis, Finding, KnownFailure
from safe_launch.catalogue.signature import Signature
from safe_launch.checkpoints.resume_point import Start
from safe_launch.core.errors import Refused
from safe_launch.core.hardware import Hardware
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Setting, Value
from safe_launch.core.workload import Workload
from safe_launch.diagnosis.attempt import (
    Attempt,
    Failed,
    Interrupted,
    Outcome,
    Seen,
    Succeeded,
    Superseded,
)
from safe_launch.diagnosis.new_constraints import SuspectCorrection
from safe_launch.evidence.failure_record import OWN_CHANGE, FailureRecord
from safe_launch.planning.plan import Change, NoPlan, Plan
from safe_launch.planning.planner import planned
from safe_launch.planning.search import Rules
from safe_launch.session.decision import End, RunState
from safe_launch.session.launch_warnings import SuspectLine
from safe_launch.session.loop import Effects, run_attempts

from .worlds import CATALOGUE, CURRENT, HARDWARE, REQUEST, known_rules

Ending = Callable[[Attempt], Outcome]
ENTRIES = [
    replace(entry, signatures=(Signature(message=re.compile(f"^{entry.id}$")),))
    if entry.id != "node-lost"
    else entry
    for entry in CATALOGUE
]
"""The shipped entries, each shown by an exception that says its id; a lost node shows itself."""


def entry_of(name: str) -> KnownFailure:
    """One of `ENTRIES`."""
    return next(entry for entry in ENTRIES if entry.id == name)


def fails(
    message: str, *, step: int | None = None, code: int = 3, observed: Mapping[str, Value] = {}
) -> Ending:
    """Rank 0 raises; a message that is an entry's id is explained by it."""
    record = FailureRecord(
        0, 1.0, "builtins.RuntimeError", message, step=step, exit_code=code, observed=observed
    )
    return lambda attempt: Failed(attempt, (record,))


def trains_otherwise(attempt: Attempt) -> Outcome:
    """A check has seen that what was changed trains otherwise, at a later step than anything."""
    assert attempt.before is not None
    record = FailureRecord(0, 1.0, OWN_CHANGE, f"not as {attempt.before.number}", step=99)
    return Failed(attempt, (record,))


def succeeds(attempt: Attempt) -> Outcome:
    """The script runs to its end."""
    return Succeeded(attempt)


def stopped_by(number: int) -> Ending:
    """A signal ends the launcher's attempt."""
    return lambda attempt: Interrupted(attempt, number)


def sees(observed: Mapping[str, Value]) -> Ending:
    """The attempt is stopped for what its workers have seen."""
    return lambda attempt: Superseded(attempt, Seen(observed))


def loses(*nodes: int, also: str = "") -> Ending:
    """Nodes are lost; a rank of another node may have failed before."""
    text = f"node {nodes[0]} (beta) is lost: its launcher has ended"
    lost = FailureRecord(None, 2.0, message=text, log_tail=(text,))
    own = [FailureRecord(0, 1.0, "builtins.RuntimeError", also, exit_code=3)] if also else []
    return lambda attempt: Failed(attempt, (*own, lost), lost=frozenset(nodes))


@dataclass
class Recorder:
    """A reporter that keeps every event as a line, and of each failure whether another follows."""

    lines: list[str] = field(default_factory=list)
    followed: list[bool] = field(default_factory=list)

    def planned(self, plan: Plan, suspects: Sequence[SuspectLine]) -> None:
        """The first plan."""
        self.lines.append(f"planned {_settings(plan.overrides)}".rstrip())
        self.lines += [f"suspect {suspect.entry.id}" for suspect in suspects]

    def suggested(self, asked: Plan, better: Plan, suspects: Sequence[SuspectLine]) -> None:
        """What is launched unchanged, and what would be changed."""
        self.lines.append(f"suggested {_settings(better.overrides)}".rstrip())

    def no_plan(self, refused: NoPlan, root: Finding | None) -> None:
        """Nothing is left to launch."""
        self.lines.append("no plan")

    def attempt_failed(
        self,
        attempt: Attempt,
        diagnosis: Diagnosis,
        suspect: SuspectCorrection | None,
        *,
        follows: bool,
    ) -> None:
        """An attempt has failed."""
        name = "unknown" if diagnosis.root.entry is None else diagnosis.root.entry.id
        doubt = "" if suspect is None else f", suspect {_settings_changed(suspect)}"
        self.lines.append(f"attempt {attempt.number + 1} failed: {name}{doubt}")
        self.followed.append(follows)

    def relaunching(self, following: Plan, state: RunState, start: Start) -> None:
        """Another attempt is made."""
        self.lines.append(f"relaunching {_settings(following.overrides)}".rstrip())

    def not_relaunched(self, following: Plan, state: RunState, refused: Refused) -> None:
        """There is another plan, which may not be launched."""
        self.lines.append(f"not relaunched: {refused.sentence}")

    def settled(self, where: str, plan: Plan, changes: Sequence[Change], *, is_made: bool) -> None:
        """Settings are changed at a boundary."""
        self.lines.append(f"settled at {where}")

    def note(self, sentence: str) -> None:
        """Anything else."""
        self.lines.append(sentence)

    def finished(self, state: RunState, end: End, run: Path) -> None:
        """The run is over."""
        self.lines.append(f"exit code {end.code}")


def _settings(values: Mapping[Setting, Value]) -> str:
    return ", ".join(f"{setting.value}={value}" for setting, value in values.items())


def _settings_changed(suspect: SuspectCorrection) -> str:
    return _settings({setting: new for setting, (_, new) in suspect.changed.items()})


@dataclass
class Run:
    """What came of a run of the loop.

    Attributes:
        state: all that is known at its end.
        end: its end.
        told: the events that the reporter was told.
        followed: for each failure, whether it was told that another attempt follows.
        plans: the plan of each attempt.
        starts: where each began.
    """

    state: RunState
    end: End
    told: list[str]
    followed: list[bool]
    plans: list[Plan]
    starts: list[Start]


def ran(
    folder: Path,
    workload: Workload,
    *endings: Ending,
    request: LaunchRequest = REQUEST,
    hardware: Hardware = HARDWARE,
    prepare: Callable[[Plan, Sequence[Outcome]], Start | Refused] = lambda _plan, _outcomes: Start(
        None
    ),
) -> Run:
    """Runs the loop with attempts that end one after the other in these ways, and no other."""
    reporter, plans, starts = Recorder(), list[Plan](), list[Start]()
    script: Iterator[Ending] = iter(endings)

    def launch(attempt: Attempt, start: Start, _rules: Rules) -> Outcome:
        assert attempt.number == len(plans)
        plans.append(attempt.plan)
        starts.append(start)
        return next(script)(attempt)

    known = tuple(known_rules(CURRENT))
    plan = planned(request, workload, hardware, known)
    assert isinstance(plan, Plan)
    effects = Effects(launch, prepare, lambda: ENTRIES, reporter, folder, pause=0)
    state, end = run_attempts(RunState(request, workload, known), plan, hardware, effects)
    assert next(script, None) is None, "fewer attempts were made than the test has endings"
    return Run(state, end, reporter.lines, reporter.followed, plans, starts)
