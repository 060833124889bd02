"""Every node but node 0: starts workers as it is told, and tells what becomes of them."""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import structs

from ..checkpoints import checkpoint, discovery
from ..core.errors import ExitCode, LaunchError
from ..core.preset import describe
from ..core.request import LaunchRequest
from ..nodes.attempt_end import AttemptEnd
from ..nodes.connection import Connection
from ..nodes.messages import Ended, Message, Order, Refusal, RunEnded, RunStarted
from ..nodes.peers import Peers, abbreviated
from ..report import summary
from ..system import orphans, run_directory, terminal
from ..workers.attempt import run_attempt
from ..workers.forkserver.client import Server
from ..workers.start import Own
from ..workers.supervisor import Watch
from .loop import require_torch


def follow(
    request: LaunchRequest,
    environment: Mapping[str, str],
    link: Connection,
    welcome: RunStarted,
    server: Server,
) -> int:
    """Takes part in the run until node 0 says its end; returns the exit code.

    Args:
        request: this node's launch.
        environment: variables that the devices' profiles say.
        link: the connection to node 0.
        welcome: what node 0 has said of the run.
        server: what this node's workers are forked from.

    Raises:
        LaunchError: the run directory can't be written, there is no torch, node 0 says so, or it
            orders what can't be.
    """
    require_torch()
    try:
        run = run_directory.run_folder(request.log_dir, request.script, welcome.run_id)
    except LaunchError as error:
        link.send(Refusal(error.code, error.problem, error.hint))
        raise
    terminal.tell(
        f"node {welcome.rank} of {welcome.nodes}: joined node 0 ({link.peer}), which plans for all",
        f"logs of this node: {run}",
    )
    guardian = orphans.guard(server.mark)
    parts: list[AttemptEnd] = []
    try:
        while True:
            match _next(link):
                case Order() as order:
                    _check(order, welcome, request, link)
                    own = Own(environment, _resume(order, parts, link))
                    parts.append(_take_part(request, order, own, server, run, link))
                case RunEnded() as farewell:
                    return _leave(farewell, _own_code(parts))
                case Refusal() as refusal:
                    raise LaunchError(ExitCode(refusal.code), refusal.problem, refusal.hint)
                case None:
                    lost = f"node 0 ({link.peer}) is lost: {link.fault}"
                    ended = _last(parts)
                    stopped = None if ended is None else ended.signal
                    code = int(ExitCode.RETRY_ELSEWHERE) if stopped is None else 128 + stopped
                    terminal.say(
                        lost,
                        "no worker is left on this node; another allocation may do",
                        f"exit code {code}",
                    )
                    summary.leave(RunEnded(code, lost))
                    return code
    finally:
        guardian.dismiss()


def _next(link: Connection) -> Message | None:
    """The next message of node 0's; None where it is gone."""
    with selectors.DefaultSelector() as selector:
        if link.fault is None:
            selector.register(link, selectors.EVENT_READ)
        while not link.waiting and link.fault is None:
            selector.select()
            link.waiting += link.receive()
    return link.waiting.pop(0) if link.waiting else None


def _check(order: Order, welcome: RunStarted, request: LaunchRequest, link: Connection) -> None:
    """Sees to it that an order is one to this node, in this run.

    Raises:
        LaunchError: it isn't; node 0 is told so.
    """
    own, nodes = order.workers[order.rank], len(order.workers)
    if order.run_id != welcome.run_id:
        _reject(link, f"an attempt of run {order.run_id}, and this is run {welcome.run_id}")
    if order.rank > welcome.rank or nodes > welcome.nodes:
        told = f"node {order.rank} of {nodes}, and this is node {welcome.rank} of {welcome.nodes}"
        _reject(link, told)
    if own != request.nproc:
        _reject(link, f"{own} workers here, and this node has said that it starts {request.nproc}")


def _resume(order: Order, parts: Sequence[AttemptEnd], link: Connection) -> str:
    """What this node's workers are told of what they go on from: a folder that they have named.

    Raises:
        LaunchError: none of them has told where it saves; node 0 is told so.
    """
    if order.resume is None:
        return ""
    saves = [one.saves for one in parts if one.saves is not None]
    folder = discovery.own_folder(order.resume, saves)
    if folder is None:
        _reject(link, f"to go on from {order.resume.name}, and no worker here has said where it is")
    return checkpoint.told(order.resume.training, folder)


def _reject(link: Connection, what: str) -> NoReturn:
    """Ends this node's part in the run.

    Raises:
        LaunchError: always.
    """
    link.send(Refusal(ExitCode.RETRY_ELSEWHERE, f"node 0 orders {what}"))
    raise LaunchError(ExitCode.RETRY_ELSEWHERE, f"node 0 ({link.peer}) orders {what}")


def _take_part(
    request: LaunchRequest, order: Order, own: Own, server: Server, run: Path, link: Connection
) -> AttemptEnd:
    """One attempt on this node; what became of it here."""
    if order.attempt:
        terminal.say(f"attempt {order.attempt + 1}: {overrides_text(order)}")
    folder = run_directory.attempt_folder(run, order.attempt)
    watch = Watch(lambda _observed, _model: True, terminal.say, server.extend)
    peers = Peers({0: link}, silence=request.placement.times.silence)
    part = run_attempt(order, own, request, server, folder, watch, peers)
    ended = part.ended[order.rank]
    link.send(structs.replace(ended, records=abbreviated(ended.records), now=time.monotonic()))
    return part


def _last(parts: Sequence[AttemptEnd]) -> Ended | None:
    """How the workers of this node ended last; None where none were started."""
    return next((ended for part in parts[-1:] for ended in part.ended.values()), None)


def _own_code(parts: Sequence[AttemptEnd]) -> int:
    """The exit code for what has become of this node's own workers; 0 where they succeeded."""
    ended = _last(parts)
    if ended is None or not (ended.is_success or ended.signal or ended.records):
        return ExitCode.RETRY_ELSEWHERE
    if ended.is_success:
        return ExitCode.SUCCESS
    return 128 + ended.signal if ended.signal else ended.records[0].exit_code or 1


def _leave(farewell: RunEnded, own: int) -> int:
    """The run is over: says so, and returns the exit code; a failure here is never a success."""
    code = farewell.code or own
    lines = [f"node 0 ended the run: {farewell.line}"]
    if code != farewell.code:
        why = "node 0 says that the run has succeeded, but the workers of this node haven't"
        lines.append(why)
        farewell = RunEnded(code, why)
    say = terminal.say if code else terminal.tell
    say(*lines, f"exit code {code}")
    summary.leave(farewell)
    return code


def overrides_text(order: Order) -> str:
    """The plan in a line, as node 0 has corrected it."""
    if not order.overrides:
        return "node 0 starts it again as it was"
    texts = [describe(setting, value) for setting, value in order.overrides.items()]
    return f"node 0 starts it again with {', '.join(texts)}"
