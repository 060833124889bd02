"""Watches the workers of one attempt until all are gone, and tells how it ended."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.request import LaunchRequest
from ..core.settings import Value
from ..evidence.worker_channel import Receiver
from ..nodes.messages import Failing, Farewell, Order, Part, Sighting, Signalled, Stop
from ..nodes.peers import Peers, lean
from ..nodes.rendezvous import refuse_late
from ..system import orphans
from ..system.signals import STOPS
from . import output, start, stop_policy
from .attempt_state import Scene, ended, failed_ranks
from .forkserver.client import Server
from .stop_signals import Stops


@dataclass(frozen=True, slots=True)
class Watch:
    """What the supervisor asks and tells while it watches.

    Attributes:
        allowed: whether the plan may go on, given what a worker has seen: settings and facts, and
            the model's shape.
        notice: told what the user should know at once, in one line.
        imported: told what a worker has imported (`later_imports.Report`).
    """

    allowed: Callable[[Mapping[str, Value], dict[str, Any] | None], bool]
    notice: Callable[[str], None]
    imported: Callable[[dict[str, Any]], None]


def run_attempt(
    order: Order,
    own: start.Own,
    request: LaunchRequest,
    server: Server,
    folder: Path,
    watch: Watch,
    peers: Peers,
) -> Part:
    """Starts this node's workers, watches them and the other nodes, stops all where one has failed.

    Args:
        order: what is launched.
        own: what this node adds to that.
        request: this node's own launch.
        server: what workers are forked from.
        folder: where the workers' logs are kept.
        watch: whom to ask and to tell.
        peers: the other nodes.

    Raises:
        LaunchError: the workers can't be started, or have lost their store.
    """
    server.prepare()
    receiver = Receiver()
    pipes = output.Output(
        folder, watch.notice, request.worker_options.streams, request.worker_options.role
    )
    pipes.open(order.ranks)
    named = receiver.name, server.mark
    envs = start.environments(order, own, request, *named, folder, peers.interface)
    output.flush_console()
    with _signals(request) as (arrived, wakeup):
        # Elastic installs handlers of its own, which raise: what comes meanwhile has to wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            context = start.start(request, order.first, envs, pipes, server)
            _handle_signals(arrived, request)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        pipes.start()
        if server.problem is not None:
            watch.notice(f"every worker does its imports itself: {server.problem}")
        pids = {order.first + local: pid for local, pid in context.pids().items()}
        scene = Scene(dict(pids), set(pids), signals=arrived, stops=Stops(dict(pids)))
        try:
            _watch(scene, receiver, wakeup, request, watch, server, peers)
        finally:
            leftovers_found = 0
            if scene.reason is not None or scene.alive:
                leftovers_found = orphans.kill(server.mark, server.pids)
            orphans.forget_buffers(order.port)
            context.wait(0)  # reaps the workers; all are gone, so nothing is left to stop
            del context  # and with it elastic's own ends of the pipes
            receiver.close()
            pipes.finish(lambda: bool(arrived))
    if scene.reason == "fault" and scene.fault is not None:
        raise scene.fault
    if leftovers_found > len(scene.alive):
        watch.notice(f"ended {leftovers_found} processes that the workers had left behind")
    return Part(
        ended={order.rank: ended(scene, pipes), **peers.ended},
        lost=peers.lost,
        failing=peers.failing,
        observed=scene.observed,
        model=scene.model,
        is_superseded=scene.reason == "superseded",
        saves=scene.saves,
    )


@contextmanager
def _signals(request: LaunchRequest) -> Iterator[tuple[list[int], socket.socket]]:
    """A list that fills with the signals that arrive, and a socket that becomes readable then."""
    arrived: list[int] = []
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    earlier = {
        number: signal.getsignal(number) for number in (*STOPS, *request.worker_options.forwarded)
    }
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    _handle_signals(arrived, request)
    try:
        yield arrived, reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in earlier.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _handle_signals(arrived: list[int], request: LaunchRequest) -> None:
    """Takes the signals, also back from torch elastic, which installs handlers of its own."""
    for number in (*STOPS, *request.worker_options.forwarded):
        signal.signal(number, lambda number, _frame: arrived.append(number))


def _watch(
    scene: Scene,
    receiver: Receiver,
    wakeup: socket.socket,
    request: LaunchRequest,
    watch: Watch,
    server: Server,
    peers: Peers,
) -> None:
    """The loop: deaths, messages, signals and deadlines, each as soon as it comes."""
    answered = 0
    with selectors.DefaultSelector() as selector:
        selector.register(receiver.listener, selectors.EVENT_READ, "connection")
        selector.register(wakeup, selectors.EVENT_READ, "signal")
        for rank, pid in scene.pids.items():
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, rank)
        if server.store_host is not None:
            selector.register(os.pidfd_open(server.store_host), selectors.EVENT_READ, "store")
        for node, link in peers.links.items():
            selector.register(link, selectors.EVENT_READ, ("node", node))
        if peers.listener is not None:
            selector.register(peers.listener, selectors.EVENT_READ, "late")
        for node in peers.links:
            _hear(selector, node, peers, scene)  # what came with the order to start, e.g. a stop
        _decide(scene, request, watch, peers)
        while scene.alive or peers.awaited():
            for key, _ in selector.select(_pause(scene, peers)):
                if key.data == "connection":
                    _welcome(selector, receiver, scene, watch)
                elif key.data == "message":
                    _read(selector, key.fileobj, receiver, scene, watch)  # type: ignore[arg-type]
                elif key.data == "signal":
                    with suppress(BlockingIOError):
                        wakeup.recv(4096)
                elif key.data == "late" and peers.listener is not None:
                    refuse_late(peers.listener, len(peers.links) + 1)
                elif isinstance(key.data, tuple):
                    _hear(selector, key.data[1], peers, scene)
                else:
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    if key.data == "store":
                        scene.fault = server.store_failure()
                    else:
                        _note_exit(scene, key.data)
            for number in scene.signals[answered:]:
                stop_policy.answer(scene, signal.Signals(number), request, watch.notice, peers)
            answered = len(scene.signals)
            _decide(scene, request, watch, peers)
            scene.stops.send_due(scene.alive, watch.notice)
            orphans.reap({*scene.pids.values(), *server.pids})
            if peers.deadline is not None and time.monotonic() >= peers.deadline:
                peers.give_up()
                _forget(selector, peers)
        for key in list(selector.get_map().values()):
            if key.data == "message":
                _read(selector, key.fileobj, receiver, scene, watch)  # type: ignore[arg-type]
            elif key.data == "store":
                os.close(key.fd)


def _pause(scene: Scene, peers: Peers) -> float | None:
    """Seconds until something is due; None where nothing is."""
    pauses = [scene.stops.pause()]
    if peers.deadline is not None:
        pauses.append(max(0.0, peers.deadline - time.monotonic()))
    return min((one for one in pauses if one is not None), default=None)


def _hear(selector: selectors.BaseSelector, node: int, peers: Peers, scene: Scene) -> None:
    """Takes in what another node has told."""
    for message in peers.hear(node):
        if isinstance(message, Stop | Signalled):
            scene.ordered = message.signal or scene.ordered
            scene.is_told = True
            scene.is_hastened |= message.again
        elif isinstance(message, Farewell):
            scene.is_told = True
        elif isinstance(message, Sighting):
            scene.observed.update(message.observed)
            scene.model = scene.model or message.model
    _forget(selector, peers)


def _forget(selector: selectors.BaseSelector, peers: Peers) -> None:
    """Ends the connections to lost nodes: whoever is at the other end after all must not wait."""
    for link in map(peers.links.__getitem__, peers.lost):
        if link.fileno() >= 0:
            selector.unregister(link)
            link.close()


def _decide(scene: Scene, request: LaunchRequest, watch: Watch, peers: Peers) -> None:
    """Stops the workers where there is a reason to, and tells the other nodes."""
    times = request.worker_options.stop_times
    stop_policy.give_time(scene, times)
    failed = failed_ranks(scene)
    if not scene.alive and scene.reason is None and not failed:
        scene.is_success = True
    if scene.reason != "interrupt" and scene.ordered is not None:
        stop_policy.interrupt(scene, signal.Signals(scene.ordered), times)
        watch.notice(f"{signal.Signals(scene.ordered).name} on another node: stopping the workers")
        if peers.is_head:
            stop_policy.tell(peers, Stop(scene.ordered), times)
    if scene.is_hastened and scene.reason == "interrupt":
        scene.is_hastened = False
        if len(scene.own_stops) < 2:  # else it has hastened by itself
            scene.stops.hasten()
        if peers.is_head:
            peers.tell(Stop(scene.ordered, again=True))
    if scene.reason is None and scene.fault is not None and (scene.alive or peers.awaited()):
        scene.reason = "fault"
        stop_policy.after_failure(scene, times)
        stop_policy.tell(peers, Stop(), times)
    if scene.reason is None and (failed or scene.is_told or peers.has_trouble):
        scene.reason = "failure"
        stop_policy.after_failure(scene, times)
        records = tuple(sorted(scene.records.values(), key=lambda one: one.at))
        if peers.is_head:
            stop_policy.tell(peers, Stop(), times)
        elif failed:
            stop_policy.tell(peers, Failing(lean(records), time.monotonic()), times)
    if scene.reason is None and not watch.allowed(scene.observed, scene.model):
        scene.reason = "superseded"
        scene.stops.schedule(scene.alive, (signal.SIGTERM, 0.0), (signal.SIGKILL, times.terminate))
        stop_policy.tell(peers, Stop(), times)
    seen = (len(scene.observed), scene.model is None)
    if not peers.is_head and seen != scene.told:
        scene.told = seen
        peers.tell(Sighting(scene.observed, scene.model))


def _welcome(
    selector: selectors.BaseSelector, receiver: Receiver, scene: Scene, watch: Watch
) -> None:
    """Accepts every worker that has connected, and takes in what it has already said.

    A worker that is quick may have ended by then: its death, seen at the same time, is judged by
    its last words.
    """
    with suppress(BlockingIOError):
        while True:
            connection = receiver.accept()
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ, "message")
                _read(selector, connection, receiver, scene, watch)


def _read(
    selector: selectors.BaseSelector,
    connection: socket.socket,
    receiver: Receiver,
    scene: Scene,
    watch: Watch,
) -> None:
    """Takes in what one worker has sent."""
    descriptor = connection.fileno()
    messages, is_open = receiver.receive(connection)
    if not is_open:
        selector.unregister(descriptor)
    for message in messages:
        if message.kind == "failing" and message.record is not None:
            scene.failing[message.rank] = message.record
        elif message.kind == "failed" and message.record is not None:
            scene.records[message.rank] = message.record
        elif message.kind == "finished":
            scene.finished.add(message.rank)
        elif message.kind == "observed" and not message.step:
            # What comes to light later can't be worth the steps already done.
            scene.observed.update(message.observed)
        elif message.kind == "model" and scene.model is None:
            scene.model = message.shape
        elif message.kind == "imported" and message.imported is not None:
            watch.imported(message.imported)
        elif message.kind == "afresh":
            watch.notice(
                f"rank {message.rank} begins once more in a fresh process: the script sets "
                f"{message.variable}, which had been read by what it imports later"
            )
        elif message.kind == "saves" and message.rank == min(scene.pids):
            scene.saves = message.saves


def _note_exit(scene: Scene, rank: int) -> None:
    """Notes how a rank ended, without reaping it: that is for torch elastic to do."""
    seen = time.monotonic()
    status: Any = os.waitid(os.P_PID, scene.pids[rank], os.WEXITED | os.WNOWAIT)
    code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
    scene.exits[rank] = (code, seen)
    scene.alive.discard(rank)
