"""A launch on node 0, which plans for all nodes, or on the only node; its attempts on them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from threading import Timer

from ..catalogue.entry import known_constraints
from ..catalogue.reader import Catalogue
from ..checkpoints.resume_point import Start
from ..core.errors import ExitCode, LaunchError
from ..core.workload import Workload
from ..diagnosis.attempt import Attempt, Failed, Outcome, outcome_of
from ..evidence import failed_workers
from ..frameworks.installed import installed
from ..hangs import attribution
from ..hangs.report import failure_records
from ..nodes.connection import broadcast, deliver
from ..nodes.joining import RunStarted
from ..nodes.messages import Order, RunEnded
from ..nodes.peers import AttemptEnd, Peers
from ..nodes.rendezvous import Joined
from ..planning.plan import Plan
from ..planning.search import Rules
from ..report import summary
from ..system import (
    kept_runs,
    orphans,
    private_files,
    run_directory,
    terminal,
)
from ..workers.attempt import run_attempt
from ..workers.environment import NodeContext
from ..workers.forkserver.client import Server
from ..workers.forkserver.tcp_store import Store
from ..workers.watch import Watch
from . import metrics_process
from .console import Reporter
from .decision import RunState
from .launch_warnings import fault_warnings, print_new
from .lessons import earlier_runs, learning
from .loop import Effects, first_plan, run_attempts
from .resume import clean_up, prepare
from .settling import Settling
from .training import Training

OLDEST_TORCH = (2, 3)
"""The first whose elastic has `LOGS_SPECS`, with which workers are started."""
SETTLING = 0.5
"""Seconds from the start that are left to the plan and the workers' start."""


def launch_as_head(
    training: Training, workload: Workload, server: Server, joined: Joined | None = None
) -> int:
    """Trains, and reports the run's end to the other nodes; returns the exit code.

    The `training` has the workers of all nodes and their common hardware.

    Raises:
        LaunchError: the run directory can't be written, or torch is missing.
    """
    require_torch()
    links = {} if joined is None else dict(enumerate(joined.connections, start=1))
    listener = None if joined is None else joined.listener
    placement = training.request.placement
    peers = Peers(links, listener, placement.job, placement.times.silence)
    devices = () if joined is None else joined.devices
    for rank, link in links.items():
        link.send(RunStarted(server.mark, rank, len(links) + 1, devices))
    guardian = orphans.guard(server.mark)
    farewell = RunEnded(ExitCode.INTERNAL, "node 0's launcher failed")
    catalogue = Catalogue(training.site_entries, workload.versions)
    # Read while all is well, so that no failure has to wait for them. No daemon: the exit has to
    # wait for the thread, which ends the process with an error if it is stopped within RE2.
    reading = Timer(SETTLING, lambda: catalogue.entries)
    reading.start()
    try:
        farewell = _train(training, workload, catalogue, server, peers)
    except LaunchError as error:
        farewell = RunEnded(error.code, error.problem)
        raise
    finally:
        reading.cancel()
        guardian.dismiss()
        broadcast(links.values(), farewell)
        deliver(links.values(), placement.times.silence)
    summary.write_pod_status(farewell)
    return farewell.code


def require_torch() -> None:
    """Checks that torch is installed, and isn't too old.

    Raises:
        LaunchError: it isn't, or is.
    """
    if find_spec("torch") is None:
        problem = f"torch isn't installed for {sys.executable}"
        raise LaunchError(problem, "install safe-launch in the environment that has torch")
    if (refusal := refusal_of(installed(["torch"]).get("torch", ""))) is not None:
        raise refusal


def refusal_of(version: str) -> LaunchError | None:
    """Why this version of torch can't be used; None if it can, or has no number."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) >= OLDEST_TORCH:
        return None
    oldest = ".".join(map(str, OLDEST_TORCH))
    problem = f"torch {version} is installed: safe-launch needs {oldest} or newer"
    return LaunchError(problem, "torchrun launches with this one")


def _train(
    training: Training, workload: Workload, catalogue: Catalogue, server: Server, peers: Peers
) -> RunEnded:
    """Makes the first plan and runs the loop with its effects."""
    request, hardware = training.request, training.hardware
    reporter = Reporter()
    learnt = earlier_runs.learnt(request, workload, hardware, catalogue, os.environ)
    start = earlier_runs.Learnt(workload) if request.limits.forget else learnt
    taught = start.sentences(catalogue, whole=terminal.is_verbose())
    for sentence in (*learnt.notes, *taught):
        reporter.note(sentence)
    known = (*known_constraints(catalogue.on_plans), *start.constraints)
    has_learnt = start.has_failed
    entries = catalogue.on_plans
    inputs = request, start.workload, hardware, known, entries
    plan = first_plan(*inputs, reporter, has_learnt=has_learnt)
    if isinstance(plan, RunEnded):
        return plan
    target = metrics_process.opened(request.metrics)
    run = run_directory.run_folder(request.log_dir, request.script, server.mark)
    if (above := private_files.open_above(run)) is not None:
        reporter.note(f"anyone may replace files in {above}, including this run's: chmod +t it")
    run_directory.write(run / "request.json", request.document())
    printed = {*fault_warnings(plan, catalogue.on_plans)}
    inform = partial(print_new, entries=catalogue.on_plans, printed=printed, notice=reporter.note)
    nodes = AllNodes(server, peers, reporter, inform)
    resume = partial(prepare, run_id=server.mark)
    effects = Effects(nodes.run, resume, lambda: catalogue.entries, reporter, run)
    state = RunState(request, start.workload, known, has_learnt=has_learnt)
    recorded = kept_runs.recorded(run, 0, request.command)
    with metrics_process.shown(target, run), recorded:
        state, end = run_attempts(state, plan, hardware, effects)
        summary.write_or_warn(run / "outcome.json", summary.document(state.outcomes, end.code))
    for sentence in learning.keep(state, workload, hardware, run.name, os.environ):
        reporter.note(sentence)
    if request.limits.forget:
        for sentence in learning.forget_disproved(state, learnt.lessons):
            reporter.note(sentence)
    reporter.finished(state, end, run)
    if request.log_dir is None:
        kept_runs.make_room(run.parent, os.environ)
    outcome = end.outcome_of(state)
    if isinstance(outcome, Failed):
        failed_workers.write(outcome.records, outcome.attempt.folder)
    return summary.farewell(end.code, outcome, state.findings)


@dataclass(slots=True)
class AllNodes:
    """Node 0's workers, and the launchers of the other nodes.

    Attributes:
        peers: the other nodes; after an attempt, those that are left.
        informed: called with the plan in force whenever workers reveal more of the training.
        unreached: keys of questions whose answers didn't reach every rank, see `Settling`.
    """

    server: Server
    peers: Peers
    reporter: Reporter
    informed: Callable[[Plan], None]
    unreached: set[str] = field(default_factory=set)

    def run(self, attempt: Attempt, start: Start, rules: Rules) -> Outcome:
        """Runs an attempt on all nodes to its end."""
        plan, server, reporter = attempt.plan, self.server, self.reporter
        port = plan.request.placement.meeting
        server.store = Store.open(port)
        if attempt.number == 0 and port not in (0, server.store.port):
            reporter.note(f"port {port} is in use: the workers meet at port {server.store.port}")
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
        environment = plan.hardware.accelerator.environment
        node = NodeContext(plan.request, server, environment, start.variable)
        self.peers.send_orders(order)
        settling = Settling(attempt, rules, self.unreached, reporter, self.informed)
        watch = Watch(settling, reporter.note, server.extend, partial(reporter.hung, attempt))
        try:
            part = run_attempt(order, node, attempt.folder, watch, self.peers)
        finally:
            server.close_store()
        clean_up(start)
        self.peers = self.peers.survivors()
        outcome = outcome_of(settling.attempt, part)
        settled = settling.seen(outcome.seen.observed, outcome.seen.model)
        seen = replace(
            outcome.seen, model=settled.model, asked=settled.asked, framework=settled.framework
        )
        return self._with_dumps(replace(outcome, seen=seen), part)

    def _with_dumps(self, outcome: Outcome, part: AttemptEnd) -> Outcome:
        """A failure with the ranks that the others waited for, if their recorders have left dumps.

        The messages of NCCL's and HCCL's watchdogs only name the ranks that waited.
        """
        dumped = [standing for end in part.ended.values() for standing in end.standings]
        if not isinstance(outcome, Failed) or not outcome.records or not dumped:
            return outcome
        report = attribution.report_on(dumped)
        self.reporter.hung(outcome.attempt, report)
        first, *others = outcome.records
        culprits = failure_records(report, first.at) if report.culprits else ()
        return replace(outcome, records=(first, *culprits, *others))
