"""The loop: resolve, launch, diagnose, learn, and again, until it trains or nothing is left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from ..catalogue.entry import Finding, KnownFailure
from ..catalogue.reader import concerns
from ..checkpoints.resume_point import Start
from ..core.errors import ExitCode, LaunchError
from ..core.hardware import Hardware
from ..core.refused import Refused
from ..core.request import Fix, LaunchRequest
from ..core.settings import Value
from ..core.workload import Workload
from ..diagnosis.attempt import Attempt, Outcome, Seen, outcome_of
from ..diagnosis.new_constraints import is_hopeless, with_seen
from ..nodes.connection import broadcast
from ..nodes.messages import Order, RunEnded, RunStarted
from ..nodes.peers import Peers
from ..nodes.rendezvous import Joined
from ..planning.plan import NoPlan, Plan
from ..planning.planner import planned
from ..planning.search import Rules, rules_of
from ..report import plan_table, summary
from ..system import orphans, run_directory, terminal
from ..workers.attempt import run_attempt
from ..workers.forkserver.client import Server
from ..workers.forkserver.tcp_store import Store
from ..workers.start import Own
from ..workers.supervisor import Watch
from . import resume
from .first_plan import dead_end, first_plan, known_constraints
from .outcome import Next, announce, judge, refuse


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
    links = {} if joined is None else dict(enumerate(joined.connections, start=1))
    listener = None if joined is None else joined.listener
    peers = Peers(links, listener, request.placement.times.silence)
    devices = () if joined is None else joined.devices
    for rank, link in links.items():
        link.send(RunStarted(server.mark, rank, len(links) + 1, devices))
    guardian = orphans.guard(server.mark)
    farewell = RunEnded(ExitCode.INTERNAL, "node 0's launcher failed")
    try:
        farewell = _launch(request, workload, hardware, catalogue, server, peers)
    except LaunchError as error:
        farewell = RunEnded(error.code, error.problem)
        raise
    finally:
        guardian.dismiss()
        broadcast(links.values(), farewell)
    summary.leave(farewell)
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
) -> RunEnded:
    """The loop."""
    entries = [entry for entry in catalogue if concerns(entry, workload.versions)]
    known = known_constraints(workload, catalogue)
    plan, start = first_plan(request, workload, hardware, known, entries), Start(None)
    if isinstance(plan, RunEnded):
        return plan
    run = run_directory.run_folder(request.log_dir, request.script, server.mark)
    run_directory.write(run / "request.json", request.document())
    state = Next(None, request, workload, known)
    outcomes: list[Outcome] = []
    findings: dict[int, Finding] = {}
    while state.exit_code is None:
        attempt = Attempt(len(outcomes), plan, run_directory.attempt_folder(run, len(outcomes)))
        document = plan_table.document(plan.request, plan.workload, plan.hardware, plan)
        summary.keep(attempt.folder / "plan.json", document)
        rules = rules_of(state.request, hardware, state.learnt)
        outcome, peers = _run(attempt, start, rules, server, peers)
        outcomes.append(outcome)
        state = judge(outcomes, entries, rules, state, findings)
        if state.exit_code is None:
            following = planned(state.request, state.workload, hardware, state.learnt)
            if isinstance(following, NoPlan):
                state = state.given_up(dead_end(following), findings)
            elif isinstance(
                begun := resume.beginning(following, outcomes, state.restarts, server.mark),
                Refused,
            ):
                state = refuse(following, attempt, findings, begun, state)
            else:
                announce(following, attempt, outcome, findings, begun)
                plan, start = following, begun
        if state.exit_code is not None and state.verdict is None:
            same = resume.again(plan, outcomes, findings, state.restarts, server.mark)
            if same is not None:
                state, start = replace(state, exit_code=None, restarts=state.restarts + 1), same
    code, stands = state.exit_code, outcomes[-1 if state.verdict is None else state.verdict]
    summary.summary(outcomes, findings, run, code)
    if state.verdict is not None:
        number = state.verdict + 1
        terminal.say(f"the failure of attempt {number} stands: its corrections led to others")
    summary.keep(run / "outcome.json", {"exit_code": code, "attempts": len(outcomes)})
    summary.last_words(stands, findings)
    return summary.farewell(code, stands, findings)


def _run(
    attempt: Attempt, start: Start, rules: Rules, server: Server, peers: Peers
) -> tuple[Outcome, Peers]:
    """One attempt on all nodes; its outcome, and the nodes that are left."""
    plan = attempt.plan
    asked = plan.request.placement.meeting
    server.store = Store.open(asked)
    if attempt.number == 0 and asked not in (0, server.store.port):
        terminal.say(f"port {asked} is in use: the workers meet at port {server.store.port}")
    order = Order(
        attempt=attempt.number,
        run_id=server.mark,
        rank=0,
        workers=plan.request.nodes,
        port=server.store.port,
        preset=plan.preset.settings(),
        overrides=plan.overrides,
        replaced=plan.replaced,
        resume=start.resume,
    )
    own = Own(plan.hardware.accelerator.environment, start.variable)
    peers.send_orders(order)
    watch = Watch(_permission(attempt, rules), terminal.say, server.extend)
    try:
        part = run_attempt(order, own, plan.request, server, attempt.folder, watch, peers)
    finally:
        server.close_store()
    resume.clean_up(start)
    return outcome_of(attempt, part), peers.survivors()


def _permission(
    attempt: Attempt, rules: Rules
) -> Callable[[Mapping[str, Value], dict[str, Any] | None], bool]:
    """Whether the attempt may go on, given what its workers see; under `suggest` it always may."""
    answers: dict[tuple[frozenset[tuple[str, Value]], bool], bool] = {}

    def allowed(observed: Mapping[str, Value], model: dict[str, Any] | None) -> bool:
        if attempt.plan.request.limits.fix is Fix.SUGGEST:
            return True
        key = frozenset(observed.items()), model is None
        if key not in answers:
            workload = with_seen(attempt.plan.workload, attempt, Seen(observed, model))
            answers[key] = not is_hopeless(attempt, workload, rules)
            if not answers[key]:
                plan = attempt.plan
                better = planned(plan.request, workload, plan.hardware, rules.constraints)
                trusting = replace(rules, by_memory=False)
                if isinstance(better, Plan) and better.doubts:
                    answers[key] = not is_hopeless(attempt, workload, trusting)
        return answers[key]

    return allowed
