"""A launch on several nodes: they meet, node 0 leads, the others follow."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from msgspec import structs

from ..checkpoints import checkpoint, save_folders
from ..core.errors import ExitCode, LaunchError, Refused
from ..core.hardware import Hardware
from ..core.preset import describe
from ..core.quantities import count_of
from ..core.request import LaunchRequest
from ..core.workload import Workload
from ..evidence import failed_workers
from ..machine import profiles
from ..nodes import secret
from ..nodes.compatibility import common_hardware, differences, never_changed_by
from ..nodes.connection import Connection, broadcast, next_message
from ..nodes.joining import Join, Refusal, RunStarted
from ..nodes.messages import Ask, Ended, Message, Order, Ping, Pong, RunEnded, Signalled, Standings
from ..nodes.peers import AttemptEnd, Peers, abbreviated
from ..nodes.rendezvous import (
    check_endpoint,
    gather,
    join,
    join_of,
    listener_of_head,
)
from ..nodes.secret import Trust
from ..report import summary
from ..system import kept_runs, orphans, run_directory, terminal
from ..system.signals import STOPS
from ..workers.attempt import run_attempt
from ..workers.environment import NodeContext
from ..workers.forkserver.client import Server
from ..workers.forkserver.tcp_store import import_torch
from ..workers.watch import Watch
from . import metrics_process
from .head import launch_as_head, require_torch
from .training import Training


def prepared(
    request: LaunchRequest, hardware: Hardware, workload: Workload, server: Server
) -> Join | None:
    """Gets this node ready to take part; returns its join, None if it is alone.

    Raises:
        LaunchError: it can't take part.
    """
    if request.placement.is_alone:
        return None
    require_torch()
    if not server.pids:
        import_torch()  # before other nodes count on this one
    return join_of(request, hardware, dict(workload.versions))


def launch_with_others(training: Training, node: Join, server: Server, trust: Trust) -> int:
    """Trains on all nodes of the job; returns the exit code, which is the same on all nodes.

    Raises:
        LaunchError: the launch isn't possible as asked.
    """
    request, hardware = training.request, training.hardware
    check_endpoint(request.placement, trust, node, terminal.say)
    listener = listener_of_head(request.placement, trust)
    if listener is None and request.placement.is_head:
        request = replace(request, placement=replace(request.placement, rank=None))
        node = structs.replace(node, rank=None)
    placement = request.placement
    if listener is None:
        link, welcome = join(placement, trust, node, terminal.say)
        _stop_together([link], Signalled)
        environment = profiles.environment_beside(hardware.accelerator, welcome.devices)
        return _follow(NodeContext(request, server, environment), link, welcome)
    if remark := secret.remark(trust, placement):
        terminal.tell(remark)
    joined = gather(placement, node, listener, terminal.say)
    _stop_together(joined.connections, _stopped)
    try:
        notes = differences(joined.joins)
        if notes and request.limits.strict:
            raise LaunchError("; ".join(notes), "--strict requires identical nodes")
        together = replace(
            request,
            workers=tuple(hello.nproc for hello in joined.joins),
            limits=never_changed_by(request.limits, joined.joins[1:]),
        )
        workload = training.workload(together)
    except LaunchError as error:
        broadcast(joined.connections, Refusal(error.code, error.problem, error.hint))
        raise
    least = common_hardware(joined.joins)
    environment = profiles.environment_beside(hardware.accelerator, joined.devices)
    device = replace(least.accelerator, environment=environment)
    least = replace(least, accelerator=device, notes=(*least.notes, *notes))
    everywhere = replace(training, request=together, hardware=least)
    return launch_as_head(everywhere, workload, server, joined)


def _stop_together(links: Sequence[Connection], message_of: Callable[[int], Message]) -> None:
    """Tells the other launchers of a signal that ends this launcher between two attempts.

    While workers run, the supervisor handles signals.
    """

    def stop(number: int, _frame: object) -> NoReturn:
        broadcast(links, message_of(number))
        os._exit(128 + number)

    for number in STOPS:
        signal.signal(number, stop)


def _stopped(number: int) -> RunEnded:
    return RunEnded(128 + number, f"stopped by {signal.Signals(number).name}")


def _follow(node: NodeContext, link: Connection, welcome: RunStarted) -> int:
    """Takes part in the run until node 0 ends it; returns the exit code.

    Raises:
        LaunchError: the run directory can't be written, node 0 refuses, or it sends an invalid
            order.
    """
    request = node.request
    try:
        run = run_directory.run_folder(request.log_dir, request.script, welcome.run_id)
    except LaunchError as error:
        link.send(Refusal(error.code, error.problem, error.hint))
        raise
    terminal.tell(
        f"node {welcome.rank} of {welcome.nodes}: joined node 0 ({link.peer}), which plans for all",
        f"logs of this node: {run}",
    )
    guardian = orphans.guard(node.server.mark)
    outcomes: list[AttemptEnd] = []
    try:
        # A file is node 0's, as nodes may share it.
        port = request.metrics if metrics_process.is_port(request.metrics) else ""
        recorded = kept_runs.recorded(run, welcome.rank, request.command)
        with metrics_process.shown(metrics_process.opened(port), run), recorded:
            while True:
                match next_message(link):
                    case Order() as order:
                        resume = _check_order(order, welcome, request, outcomes, link)
                        here = replace(node, resume=resume)
                        outcomes.append(_take_part(order, here, run, link))
                    case Ping():  # node 0's workers still run
                        link.send(Pong())
                    case Ask():
                        link.send(Standings())
                    case RunEnded() as farewell:
                        return _end(farewell, exit_code_of(outcomes))
                    case Refusal() as refusal:
                        raise LaunchError(
                            refusal.problem, refusal.hint, code=ExitCode(refusal.code)
                        )
                    case None:
                        return _report_lost(f"node 0 ({link.peer}) is lost: {link.fault}", outcomes)
    finally:
        guardian.dismiss()


def _check_order(
    order: Order,
    welcome: RunStarted,
    request: LaunchRequest,
    outcomes: Sequence[AttemptEnd],
    link: Connection,
) -> str:
    """Checks an order from node 0; returns the checkpoint that this node's workers resume from.

    Raises:
        LaunchError: the order isn't for this node and this run; node 0 is informed.
    """
    resume = contradiction(order, welcome, request) or resume_variable(order, outcomes)
    if isinstance(resume, Refused):
        link.send(Refusal(ExitCode.RETRY_ELSEWHERE, f"node 0 orders {resume.sentence}"))
        problem = f"node 0 ({link.peer}) orders {resume.sentence}"
        raise LaunchError(problem, code=ExitCode.RETRY_ELSEWHERE)
    return resume


def contradiction(order: Order, welcome: RunStarted, request: LaunchRequest) -> Refused | None:
    """Why an order can't be for this node and this run; None if it can."""
    workers, nodes = order.workers[order.rank], len(order.workers)
    if order.run_id != welcome.run_id:
        return Refused(f"an attempt of run {order.run_id}, and this is run {welcome.run_id}")
    if order.rank > welcome.rank or nodes > welcome.nodes:
        there = f"node {order.rank} of {nodes}"
        return Refused(f"{there}, and this is node {welcome.rank} of {welcome.nodes}")
    if workers != request.nproc:
        ordered = f"{count_of(workers, 'worker')} here"
        return Refused(f"{ordered}, and this node announced {request.nproc}")
    return None


def resume_variable(order: Order, outcomes: Sequence[AttemptEnd]) -> str | Refused:
    """The checkpoint that this node's workers resume from: its folder was reported by them."""
    if order.resume is None:
        return ""
    saves = [outcome.saves for outcome in outcomes if outcome.saves]
    for places in saves:
        save_folders.gather(places)
    folder = save_folders.local_folder(order.resume, [first for first, *_ in saves])
    if folder is None:
        unknown = "no worker here has reported where it is"
        return Refused(f"to resume from {order.resume.name}, and {unknown}")
    return checkpoint.resume_value(order.resume.training, folder)


def _take_part(order: Order, node: NodeContext, run: Path, link: Connection) -> AttemptEnd:
    """Runs an attempt on this node; returns how it ended here."""
    if order.attempt:
        terminal.say(f"attempt {order.attempt + 1}: {order_text(order)}")
    folder = run_directory.attempt_folder(run, order.attempt)
    watch = Watch(None, terminal.say, node.server.extend, lambda _report: None)
    peers = Peers({0: link}, silence=node.request.placement.times.silence)
    part = run_attempt(order, node, folder, watch, peers)
    ended = part.ended[order.rank]
    if ended.signal is None:
        failed_workers.write(ended.records, folder)
    link.send(structs.replace(ended, records=abbreviated(ended.records), now=time.monotonic()))
    return part


def _last_end(outcomes: Sequence[AttemptEnd]) -> Ended | None:
    """The end of this node's workers in the last attempt; None if none were started."""
    return next((end for outcome in outcomes[-1:] for end in outcome.ended.values()), None)


def exit_code_of(outcomes: Sequence[AttemptEnd]) -> int:
    """The exit code for how this node's workers ended; 0 if they succeeded."""
    ended = _last_end(outcomes)
    if ended is None or not (ended.is_success or ended.signal or ended.records):
        return ExitCode.RETRY_ELSEWHERE
    if ended.is_success:
        return ExitCode.SUCCESS
    return 128 + ended.signal if ended.signal else ended.records[0].exit_code or 1


def _report_lost(problem: str, outcomes: Sequence[AttemptEnd]) -> int:
    """Reports that node 0 is gone; returns the exit code."""
    ended = _last_end(outcomes)
    stopped = None if ended is None else ended.signal
    code = int(ExitCode.RETRY_ELSEWHERE) if stopped is None else 128 + stopped
    advice = "no worker is left on this node; try another allocation"
    terminal.say(problem, advice, f"exit code {code}")
    summary.write_pod_status(RunEnded(code, problem))
    return code


def _end(farewell: RunEnded, code_here: int) -> int:
    """Reports the end of the run; returns the exit code, never 0 if this node's workers failed."""
    code = farewell.code or code_here
    lines = [f"node 0 ended the run: {farewell.line}"]
    if code != farewell.code:
        why = "node 0 says that the run has succeeded, but the workers of this node haven't"
        lines.append(why)
        farewell = RunEnded(code, why)
    say = terminal.say if code else terminal.tell
    say(*lines, f"exit code {code}")
    summary.write_pod_status(farewell)
    return code


def order_text(order: Order) -> str:
    """Node 0's plan for a further attempt, as one line."""
    if not order.overrides:
        return "node 0 relaunches with the same plan"
    texts = [describe(setting, value) for setting, value in order.overrides.items()]
    return f"node 0 relaunches with {', '.join(texts)}"
