"""A launch on several nodes: they meet, node 0 leads, the others follow."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from msgspec import structs

from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.workload import Workload
from ..machine import profiles
from ..nodes import secret
from ..nodes.compatibility import common_hardware, differences, never_changed_by
from ..nodes.connection import Connection, broadcast
from ..nodes.joining import Join, Refusal
from ..nodes.messages import Message, RunEnded, Signalled
from ..nodes.rendezvous import check_endpoint, gather, join, join_of, listener_of_head
from ..nodes.secret import Trust
from ..system import terminal
from ..system.signals import STOPS
from ..workers.environment import NodeContext
from ..workers.forkserver.client import Server
from ..workers.forkserver.tcp_store import import_torch
from . import follower
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
        return follower.follow(NodeContext(request, server, environment), link, welcome)
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
