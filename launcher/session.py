"""The loop: resolve, launch, diagnose, learn, and again, until it trains or nothing is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import (
    closing,
    explain,
    journal,
    leftovers,
    lost_nodes,
    plan_report,
    restart,
    supervise,
    terminal,
)
from .attempt import (
    Attempt,
    Failed,
    Interrupted,
    Outcome,
    Seen,
    Succeeded,
    Superseded,
    outcome_of,
)
from .catalogue import concerns
from .constraint import Constraint
from .diagnose import diagnose
from .exit_code import ExitCode, LaunchError
from .failure import Diagnosis, Finding, Kind, KnownFailure
from .joining import Joined
from .lessons import is_hopeless, learnt_from, with_seen
from .links import broadcast
from .machine import Hardware
from .messages import Farewell, Order, Welcome
from .narrowing import narrowing
from .peers import Peers
from .plan import NoPlan, Plan
from .preview import dead_end, first_plan, known_constraints
from .progress import Refused, Start
from .record import FailureRecord
from .remedies import planned
from .request import Fix, LaunchRequest
from .resolve import Rules, rules_of
from .settings import Value
from .source import spots
from .store import Store
from .warm import Server
from .workload import Workload

PAUSE = 10.0
"""Seconds before what passes by itself is tried again: devices and ports are let go of later than
their process ends (CANN asks for ten seconds, its error EJ0001)."""


@dataclass(frozen=True, slots=True)
class Next:
    """What an outcome leads to: another attempt with what is known now, or an end.

    Attributes:
        exit_code: the launcher's exit code, or None for another attempt.
        request: with the nodes that are left.
        workload: what is known now.
        learnt: what is forbidden: by the catalogue, the hardware and the attempts so far.
        retried: ids of transient failures that have been tried again.
        restarts: how often the same plan was tried again because the user asked for that.
    """

    exit_code: int | None
    request: LaunchRequest
    workload: Workload
    learnt: tuple[Constraint, ...] = ()
    retried: frozenset[str] = frozenset()
    restarts: int = 0

    def end(self, code: int) -> Next:
        """No further attempt."""
        return replace(self, exit_code=code)


def launch(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    catalogue: Sequence[KnownFailure],
    server: Server,
    joined: Joined | None = None,
) -> int:
    """Trains, and says so to the other nodes; returns the exit code.

    Args:
        request: what the user asked for, with the workers of all nodes.
        workload: what is known of the training.
        hardware: what every node has at least.
        catalogue: the known failures.
        server: what this node's workers are forked from.
        joined: the nodes of the job; None where there is no other.

    Raises:
        LaunchError: the run directory can't be written, or there is no torch.
    """
    require_torch()
    links = {} if joined is None else dict(enumerate(joined.links, start=1))
    listener = None if joined is None else joined.listener
    peers = Peers(links, listener, request.placement.times.silence)
    for rank, link in links.items():
        link.send(Welcome(server.mark, rank, len(links) + 1))
    guardian = leftovers.guard(server.mark)
    farewell = Farewell(ExitCode.INTERNAL, "node 0's launcher failed")
    try:
        farewell = _launch(request, workload, hardware, catalogue, server, peers)
    except LaunchError as error:
        farewell = Farewell(error.code, error.problem)
        raise
    finally:
        guardian.dismiss()
        broadcast(links.values(), farewell)
    closing.leave(farewell)
    return farewell.code


def require_torch() -> None:
    """Says so where there is no torch to launch with.

    Raises:
        LaunchError: there is none.
    """
    if find_spec("torch") is None:
        problem = f"torch isn't installed for {sys.executable}"
        raise LaunchError(ExitCode.USAGE, problem, "install safe-launch where your torch is")


def _launch(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    catalogue: Sequence[KnownFailure],
    server: Server,
    peers: Peers,
) -> Farewell:
    """The loop."""
    entries = [entry for entry in catalogue if concerns(entry, workload.versions)]
    known = known_constraints(workload, catalogue)
    plan, start = first_plan(request, workload, hardware, known, entries), Start(None)
    if isinstance(plan, Farewell):
        return plan
    run = journal.run_folder(request.log_dir, request.script, server.mark)
    journal.write(run / "request.json", request)
    state = Next(None, request, workload, known)
    outcomes: list[Outcome] = []
    findings: dict[int, Finding] = {}
    while state.exit_code is None:
        attempt = Attempt(len(outcomes), plan, journal.attempt_folder(run, len(outcomes)))
        document = plan_report.document(plan.request, plan.workload, plan.hardware, plan)
        _keep(attempt.folder / "plan.json", document)
        rules = rules_of(state.request, hardware, state.learnt)
        outcome, peers = _run(attempt, start, rules, server, peers)
        outcomes.append(outcome)
        state = _judge(outcome, entries, rules, state, findings)
        if state.exit_code is None:
            following = planned(state.request, state.workload, hardware, state.learnt)
            if isinstance(following, NoPlan):
                state = state.end(dead_end(following))
            elif isinstance(
                begun := restart.beginning(following, outcomes, state.restarts, server.mark),
                Refused,
            ):
                state = _refuse(following, attempt, findings, begun, state)
            else:
                _announce(following, attempt, outcome, findings, begun)
                plan, start = following, begun
        if state.exit_code is not None:
            same = restart.again(plan, outcomes, findings, state.restarts, server.mark)
            if same is not None:
                state, start = replace(state, exit_code=None, restarts=state.restarts + 1), same
    code = state.exit_code
    closing.summary(outcomes, findings, run, code)
    _keep(run / "outcome.json", {"exit_code": code, "attempts": len(outcomes)})
    closing.last_words(outcomes[-1], findings)
    return closing.farewell(code, outcomes[-1], findings)


def _run(
    attempt: Attempt, start: Start, rules: Rules, server: Server, peers: Peers
) -> tuple[Outcome, Peers]:
    """One attempt on all nodes; its outcome, and the nodes that are left."""
    plan = attempt.plan
    server.store = Store.open(plan.request.placement.meeting)
    order = Order(
        attempt=attempt.number,
        run_id=server.mark,
        rank=0,
        workers=plan.request.nodes,
        address=plan.request.placement.address or "localhost",
        port=server.store.port,
        preset=plan.preset.settings(),
        overrides=plan.overrides,
        environment=plan.hardware.accelerator.environment,
        resume=start.variable,
    )
    peers.send_orders(order)
    watch = supervise.Watch(_permission(attempt, rules), terminal.say, server.extend)
    part = supervise.run_attempt(order, plan.request, server, attempt.folder, watch, peers)
    server.close_store()
    restart.clean_up(start)
    return outcome_of(attempt, part), peers.left()


def _keep(path: Path, content: object) -> None:
    """Writes to the run directory; a disk that fills up on the way doesn't end the training."""
    try:
        journal.write(path, content)
    except LaunchError as error:
        terminal.say(f"{error.problem}; the run goes on")


def _permission(
    attempt: Attempt, rules: Rules
) -> Callable[[Mapping[str, Value], dict[str, Any] | None], bool]:
    """Whether the attempt may go on, given what its workers see; under `suggest` it always may."""
    answers: dict[tuple[frozenset[tuple[str, Value]], bool], bool] = {}

    def allowed(observed: Mapping[str, Value], model: dict[str, Any] | None) -> bool:
        if attempt.plan.request.fix is Fix.SUGGEST:
            return True
        key = frozenset(observed.items()), model is None
        if key not in answers:
            workload = with_seen(attempt.plan.workload, attempt, Seen(observed, model))
            answers[key] = not is_hopeless(attempt, workload, rules)
        return answers[key]

    return allowed


def _judge(
    outcome: Outcome,
    entries: Sequence[KnownFailure],
    rules: Rules,
    state: Next,
    findings: dict[int, Finding],
) -> Next:
    """What an outcome leads to; a failure is diagnosed, explained and learnt from."""
    match outcome:
        case Succeeded():
            return state.end(ExitCode.SUCCESS)
        case Interrupted(signal=number):
            return state.end(128 + number)
        case Superseded(attempt=attempt, seen=seen):
            workload = with_seen(state.workload, attempt, seen)
            return replace(state, workload=workload)
        case Failed(attempt=attempt, records=records, seen=seen):
            diagnosis = diagnose(records, entries, narrowing(entries, len(records)))
            _keep(attempt.folder / "failures.json", {"findings": diagnosis.rows()})
            root = findings[attempt.number] = diagnosis.root
            if root.entry is None:
                log = attempt.folder / f"rank-{root.record.rank}.log"
                rows = explain.unexplained_rows(diagnosis, log)
                _say_end(attempt, [*rows, *explain.other_rows(diagnosis)])
                return state.end(_exit_code(root))
            _say_end(attempt, _explained(diagnosis, attempt))
            if outcome.lost:
                request = lost_nodes.left(attempt.plan.request, state.workload, outcome.lost)
                if isinstance(request, str):
                    terminal.say(request)
                    return state.end(ExitCode.RETRY_ELSEWHERE)
                state = replace(state, request=request)
                if root.record.rank is None:
                    return state
            if root.entry.kind is Kind.TRANSIENT and root.entry.id not in state.retried:
                terminal.say(f"waiting {PAUSE:g} s: the failure passes by itself")
                time.sleep(PAUSE)
                return replace(state, retried=state.retried | {root.entry.id})
            if root.entry.kind not in (Kind.PRESET, Kind.MEMORY):
                return state.end(_exit_code(root))
            learnt = learnt_from(state.workload, attempt, seen, root, rules)
            if isinstance(learnt, str):
                terminal.say(learnt)
                return state.end(_exit_code(root))
            workload, after = learnt
            return replace(state, workload=workload, learnt=after.constraints)


def _explained(diagnosis: Diagnosis, attempt: Attempt) -> list[explain.Row]:
    root = diagnosis.root
    search = None if root.entry is None else root.entry.points_at
    found = () if search is None else spots(search, root.record.user_files)
    rows = explain.failure_rows(root, attempt.number, found, attempt.plan.overrides)
    return [*rows, *explain.other_rows(diagnosis)]


def _say_end(attempt: Attempt, rows: Sequence[explain.Row]) -> None:
    terminal.say(f"attempt {attempt.number + 1} failed", *terminal.table(rows))


def _exit_code(root: Finding) -> int:
    """The worker's own code; a node at fault has a code of its own."""
    if root.entry is not None and root.entry.kind is Kind.HARDWARE:
        return ExitCode.RETRY_ELSEWHERE
    return root.record.exit_code or 1


def _announce(
    following: Plan,
    attempt: Attempt,
    outcome: Outcome,
    findings: Mapping[int, Finding],
    start: Start,
) -> None:
    """Says what the next attempt changes."""
    if isinstance(outcome, Superseded):
        terminal.say("stopped before a failure: what the workers reported is known to fail")
        rows = [("change", explain.change_text(change)) for change in following.changes]
    else:
        record = findings[attempt.number].record
        rows = explain.correction_rows(following, attempt.plan, record)
    again = [] if rows else [("change", "none: the failure passes by itself")]
    begins = [("start", start.sentence)] if start.sentence else []
    number = attempt.number + 2
    terminal.say(*terminal.table([*rows, *again, *begins]), f"relaunching: attempt {number}")


def _refuse(
    following: Plan,
    attempt: Attempt,
    findings: Mapping[int, Finding],
    refused: Refused,
    state: Next,
) -> Next:
    """Ends where no further relaunch is allowed, with what would have been changed."""
    finding = findings.get(attempt.number)
    record = FailureRecord(0, 0.0) if finding is None else finding.record
    rows = explain.correction_rows(following, attempt.plan, record)
    terminal.say(
        *terminal.table([("suggest", text) for label, text in rows if label == "change"]),
        f"not relaunched: {refused.sentence}",
    )
    code = ExitCode.NO_PLAN if finding is None else _exit_code(finding)
    return state.end(code)
