"""Runs one attempt on this node: starts and watches its workers, returns how it ended."""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import Refused, reason_of
from ..core.quantities import count_of
from ..evidence import inquiry
from ..evidence.worker_receiver import Receiver
from ..hangs import flight_recorder
from ..hangs.asking import standings, up_to_date
from ..nodes.messages import Order
from ..nodes.peers import AttemptEnd, Peers
from ..progress import snapshot
from ..progress.board import Board
from ..system import orphans, terminal, torch_extensions
from ..system.signals import REPORT, STOPS, SignalWakeup, StoppedError
from ..system.unix_sockets import socket_folder
from . import start
from .check_watch import CheckWatch
from .environment import NodeContext, environments
from .forkserver.forking_process import Forked
from .forkserver.tcp_store import import_torch
from .hang_watch import Asker, HangWatch
from .output import Output, flush_console
from .progress_watch import ProgressWatch
from .supervisor import Supervisor
from .watch import Watch

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext


def run_attempt(
    order: Order, node: NodeContext, folder: Path, watch: Watch, peers: Peers
) -> AttemptEnd:
    """Starts and watches this node's workers; stops them when any worker of the job fails.

    Raises:
        LaunchError: the workers can't be started, or have lost their store.
    """
    begun = time.monotonic()
    request, server = node.request, node.server
    if not server.pids:
        import_torch()  # takes seconds, during which a signal still ends the launcher at once
    options = request.worker_options
    output = Output(folder, watch.notice, options.streams, options.role)
    output.open(order.ranks)
    board = _board(order.first, request.nproc, watch)
    for sentence in torch_extensions.clear_locks(os.environ):
        watch.notice(sentence)
    flush_console()
    with (
        socket_folder(folder, order.rank) as sockets,
        closing(Receiver(sockets)) as receiver,
        SignalWakeup((*STOPS, REPORT, *options.forwarded)) as wakeup,
    ):
        server.wakeup = wakeup
        node = replace(node, board="" if board is None else board.path, sockets=str(sockets))
        envs = environments(order, node, receiver.path, folder, peers.interface)
        processes: PContext | Forked
        try:
            processes = start.start(node, order.first, envs, output)
        except StoppedError:
            server.end()  # otherwise it could still fork workers
            processes = Forked({})
        output.start()
        if server.problem is not None:
            terminal.detail(f"every worker does its imports itself: {server.problem}")
        pids = {order.first + local: pid for local, pid in processes.pids().items()}
        look = tuple if board is None else board.rows
        asker = Asker(lambda rows: up_to_date(standings(rows, sockets, look=look), look))
        hangs = HangWatch(
            options.hang_times, order.spans, look, asker, peers, watch.hung, watch.notice
        )
        progress = ProgressWatch(
            *(order.rank, folder, look, peers, watch.notice),
            lambda: request.is_program or any(output.tails.values()),
        )
        replaced = watch.judge.replaced if watch.judge else lambda: None
        checks = CheckWatch(
            options.checks, range(order.world), folder, peers, watch.notice, replaced
        )
        supervisor = Supervisor(pids, receiver, wakeup, node, watch, peers, hangs, progress, checks)
        try:
            supervisor.watch_all()
        finally:
            left_behind = supervisor.kill_orphans()
            orphans.forget_buffers(order.port)
            processes.wait(0)  # reaps the workers; all have exited, so it stops nothing
            del processes  # closes elastic's ends of the pipes
            asker.close()
            output.finish(lambda: bool(wakeup.arrived))
    if supervisor.fault is not None:
        raise supervisor.fault
    if left_behind > len(supervisor.workers.alive):
        watch.notice(f"ended {count_of(left_behind, 'process')} that the workers had left behind")
    dumped = flight_recorder.standings(
        flight_recorder.of_ranks(inquiry.dumps_prefix(folder), order.ranks)
    )
    dumped = () if isinstance(dumped, Refused) else dumped
    end = replace(supervisor.end(order.rank, output, dumped), span=(begun, time.monotonic()))
    if board is not None:
        board.close()
        with suppress(OSError):  # the run is over: a full disk is reported elsewhere
            snapshot.write(folder, order.rank, end.rows)
    return end


def _board(first: int, count: int, watch: Watch) -> Board | None:
    """The progress board of this node's ranks; None if there is no memory for it."""
    try:
        return Board(first, count)
    except OSError as error:
        watch.notice(f"no progress can be shown: no memory for the board: {reason_of(error)}")
        return None
