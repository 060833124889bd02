"""Every node but node 0: starts workers as it is told, and tells what becomes of them."""

from __future__ import annotations

import selectors
import time
from dataclasses import replace
from pathlib import Path

from . import closing, journal, leftovers, supervise, terminal
from .exit_code import ExitCode, LaunchError
from .links import Link
from .messages import Ended, Farewell, Message, Order, Refusal, Welcome
from .peers import Peers, lean
from .preset import describe
from .request import LaunchRequest
from .session import require_torch
from .warm import Server


def follow(request: LaunchRequest, link: Link, welcome: Welcome, server: Server) -> int:
    """Takes part in the run until node 0 says its end; returns the exit code.

    Args:
        request: this node's launch.
        link: the connection to node 0.
        welcome: what node 0 has said of the run.
        server: what this node's workers are forked from.

    Raises:
        LaunchError: the run directory can't be written, there is no torch, or node 0 says so.
    """
    require_torch()
    try:
        run = journal.run_folder(request.log_dir, request.script, welcome.run_id)
    except LaunchError as error:
        link.send(Refusal(error.code, error.problem, error.hint))
        raise
    terminal.tell(
        f"node {welcome.rank} of {welcome.nodes}: joined node 0 ({link.peer}), which plans for all",
        f"logs of this node: {run}",
    )
    guardian = leftovers.guard(server.mark)
    code = int(ExitCode.RETRY_ELSEWHERE)
    try:
        while True:
            match _next(link):
                case Order() as order:
                    ended = _take_part(request, order, server, run, link)
                    if ended.signal is not None:
                        code = 128 + ended.signal
                case Farewell() as farewell:
                    text = f"node 0 ended the run: {farewell.line}"
                    say = terminal.say if farewell.code else terminal.tell
                    say(text, f"exit code {farewell.code}")
                    closing.leave(farewell)
                    return farewell.code
                case Refusal() as refusal:
                    raise LaunchError(ExitCode(refusal.code), refusal.problem, refusal.hint)
                case None:
                    lost = f"node 0 ({link.peer}) is lost: {link.fault}"
                    terminal.say(
                        lost,
                        "no worker is left on this node; another allocation may do",
                        f"exit code {code}",
                    )
                    closing.leave(Farewell(code, lost))
                    return code
    finally:
        guardian.dismiss()


def _next(link: Link) -> Message | None:
    """The next message of node 0's; None where it is gone."""
    with selectors.DefaultSelector() as selector:
        if link.fault is None:
            selector.register(link, selectors.EVENT_READ)
        while not link.waiting and link.fault is None:
            selector.select()
            link.waiting += link.receive()
    return link.waiting.pop(0) if link.waiting else None


def _take_part(
    request: LaunchRequest, order: Order, server: Server, run: Path, link: Link
) -> Ended:
    """One attempt on this node; how it ended here."""
    if order.attempt:
        terminal.say(f"attempt {order.attempt + 1}: {overrides_text(order)}")
    folder = journal.attempt_folder(run, order.attempt)
    watch = supervise.Watch(lambda _observed, _model: True, terminal.say, server.extend)
    peers = Peers({0: link}, silence=request.placement.times.silence)
    part = supervise.run_attempt(order, request, server, folder, watch, peers)
    ended = part.ended[order.rank]
    link.send(replace(ended, records=lean(ended.records), now=time.monotonic()))
    return ended


def overrides_text(order: Order) -> str:
    """The plan in a line, as node 0 has corrected it."""
    if not order.overrides:
        return "node 0 starts it again as it was"
    texts = [describe(setting, value) for setting, value in order.overrides.items()]
    return f"node 0 starts it again with {', '.join(texts)}"
