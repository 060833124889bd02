"""Watches the workers of one attempt until all are gone, and tells how it ended."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from . import leftovers, output, workers
from .attempt import Attempt, Failed, Interrupted, Outcome, Seen, Succeeded, Superseded
from .channel import Receiver
from .host import oom_kills
from .record import FailureRecord
from .request import StopTimes
from .settings import Value
from .stops import Stops

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the run."""
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are passed on to the workers that have a handler for them."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What the supervisor asks and tells while it watches.

    Attributes:
        allowed: whether the plan may go on, given what a worker has seen.
        notice: told what the user should know at once, in one line.
    """

    allowed: Callable[[Seen], bool]
    notice: Callable[[str], None]


@dataclass(slots=True)
class _Scene:
    """What has happened so far in the attempt.

    Attributes:
        pids: process of each rank.
        alive: ranks that still run.
        exits: exit code of each rank that is gone, -N for signal N, and when it was seen.
        records: what failing ranks told, by rank.
        finished: ranks whose script ran to its end.
        observed: what the workers have seen.
        model: the model as the first worker described it.
        signals: signals that the launcher was sent, in their order.
        reason: why the workers are being stopped; None while they run.
        stops: the signals that the workers have got and will get.
        oom_kills: how often the out-of-memory killer had struck before.
    """

    pids: dict[int, int]
    alive: set[int]
    exits: dict[int, tuple[int, float]] = field(default_factory=dict)
    records: dict[int, FailureRecord] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    observed: dict[str, Value] = field(default_factory=dict)
    model: dict[str, Any] | None = None
    signals: list[int] = field(default_factory=list)
    reason: str | None = None
    stops: Stops = field(default_factory=Stops)
    oom_kills: int = field(default_factory=oom_kills)


def run_attempt(attempt: Attempt, run_id: str, watch: Watch) -> Outcome:
    """Starts the attempt's workers, watches them, stops them where one has failed."""
    receiver = Receiver()
    store = workers.host_store()
    pipes = output.Output(attempt.folder, watch.notice)
    pipes.open(range(attempt.plan.request.nproc))
    envs = workers.environments(attempt, run_id, receiver.name, store.port)
    output.flush_console()
    with _signals() as (arrived, wakeup):
        # Elastic installs handlers of its own, which raise: what comes meanwhile has to wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            context = workers.start(attempt, envs, pipes)
            _handle_signals(arrived)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        pipes.start()
        pids = context.pids()
        scene = _Scene(dict(pids), set(pids), signals=arrived, stops=Stops(dict(pids)))
        try:
            _watch(scene, receiver, wakeup, attempt.plan.request.stop_times, watch)
        finally:
            leftovers_found = 0
            if scene.reason is not None or scene.alive:
                leftovers_found = leftovers.kill(run_id)
            context.wait(0)  # reaps the workers; all are gone, so nothing is left to stop
            del context  # and with it elastic's own ends of the pipes
            receiver.close()
            pipes.finish(lambda: bool(arrived))
    if leftovers_found > len(scene.alive):
        watch.notice(f"ended {leftovers_found} processes that the workers had left behind")
    return _outcome(attempt, scene, pipes)


@contextmanager
def _signals() -> Iterator[tuple[list[int], socket.socket]]:
    """A list that fills with the signals that arrive, and a socket that becomes readable then."""
    arrived: list[int] = []
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    earlier = {number: signal.getsignal(number) for number in (*STOPS, *FORWARDED)}
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    _handle_signals(arrived)
    try:
        yield arrived, reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in earlier.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _handle_signals(arrived: list[int]) -> None:
    """Takes the signals, also back from torch elastic, which installs handlers of its own."""
    for number in (*STOPS, *FORWARDED):
        signal.signal(number, lambda number, _frame: arrived.append(number))


def _watch(
    scene: _Scene, receiver: Receiver, wakeup: socket.socket, times: StopTimes, watch: Watch
) -> None:
    """The loop: deaths, messages, signals and deadlines, each as soon as it comes."""
    answered = 0
    with selectors.DefaultSelector() as selector:
        selector.register(receiver.listener, selectors.EVENT_READ, "connection")
        selector.register(wakeup, selectors.EVENT_READ, "signal")
        for rank, pid in scene.pids.items():
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, rank)
        while scene.alive:
            for key, _ in selector.select(scene.stops.pause()):
                if key.data == "connection":
                    _welcome(selector, receiver, scene)
                elif key.data == "message":
                    _read(selector, key.fileobj, receiver, scene)  # type: ignore[arg-type]
                elif key.data == "signal":
                    with suppress(BlockingIOError):
                        wakeup.recv(4096)
                else:
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    _note_exit(scene, key.data)
            for number in scene.signals[answered:]:
                _answer(scene, signal.Signals(number), times, watch)
            answered = len(scene.signals)
            if scene.reason is None and _failed_ranks(scene):
                scene.reason = "failure"
                _stop_after_failure(scene, times)
            if scene.reason is None and not watch.allowed(Seen(scene.observed, scene.model)):
                scene.reason = "superseded"
                scene.stops.schedule(
                    scene.alive, (signal.SIGTERM, 0.0), (signal.SIGKILL, times.terminate)
                )
            scene.stops.send_due(scene.alive, watch.notice)
            leftovers.reap(set(scene.pids.values()))
        for key in list(selector.get_map().values()):
            if key.data == "message":
                _read(selector, key.fileobj, receiver, scene)  # type: ignore[arg-type]


def _welcome(selector: selectors.BaseSelector, receiver: Receiver, scene: _Scene) -> None:
    """Accepts every worker that has connected, and takes in what it has already said.

    A worker that is quick may have ended by then: its death, seen at the same time, is judged by
    its last words.
    """
    with suppress(BlockingIOError):
        while True:
            connection = receiver.accept()
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ, "message")
                _read(selector, connection, receiver, scene)


def _read(
    selector: selectors.BaseSelector, connection: socket.socket, receiver: Receiver, scene: _Scene
) -> None:
    """Takes in what one worker has sent."""
    descriptor = connection.fileno()
    messages, is_open = receiver.receive(connection)
    if not is_open:
        selector.unregister(descriptor)
    for message in messages:
        if message.kind == "failed" and message.record is not None:
            scene.records[message.rank] = message.record
        elif message.kind == "finished":
            scene.finished.add(message.rank)
        elif message.kind == "observed" and not message.step:
            # What comes to light later can't be worth the steps already done.
            scene.observed.update(message.observed)
        elif message.kind == "model" and scene.model is None:
            scene.model = message.shape


def _note_exit(scene: _Scene, rank: int) -> None:
    """Notes how a rank ended, without reaping it: that is for torch elastic to do."""
    seen = time.monotonic()
    status: Any = os.waitid(os.P_PID, scene.pids[rank], os.WEXITED | os.WNOWAIT)
    code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
    scene.exits[rank] = (code, seen)
    scene.alive.discard(rank)


def _failed_ranks(scene: _Scene) -> set[int]:
    """Ranks that have failed for certain; dying after the script's end isn't failing."""
    dead = {
        rank
        for rank, (code, _) in scene.exits.items()
        if code > 0 or (code < 0 and rank not in scene.finished)
    }
    return dead | scene.records.keys()


def _stop_after_failure(scene: _Scene, times: StopTimes) -> None:
    """The silent ranks end at once; those that told a failure may run their exit handlers."""
    telling = scene.alive & scene.records.keys()
    kill = (signal.SIGKILL, times.leave + times.terminate)
    scene.stops.schedule(scene.alive - telling, (signal.SIGTERM, 0.0), kill)
    scene.stops.schedule(telling, (signal.SIGTERM, times.leave), kill)


def _answer(scene: _Scene, number: signal.Signals, times: StopTimes, watch: Watch) -> None:
    """What a signal to the launcher does: a repeated stop goes on to the next, harder step."""
    if number in FORWARDED:
        for rank in sorted(scene.alive):
            if scene.stops.catches(rank, number):
                scene.stops.send(rank, number)
            else:
                watch.notice(f"{number.name} isn't passed on: rank {rank} has no handler for it")
        return
    if scene.reason == "interrupt":
        scene.stops.hasten()
        return
    scene.reason = "interrupt"
    scene.stops.deadlines.clear()
    watch.notice(f"{number.name}: stopping the workers")
    if number == signal.SIGINT:
        term = times.interrupt
        scene.stops.schedule(
            scene.alive,
            (signal.SIGINT, 0.0),
            (signal.SIGTERM, term),
            (signal.SIGKILL, term + times.terminate),
        )
    else:
        scene.stops.schedule(scene.alive, (number, 0.0), (signal.SIGKILL, times.terminate))


def _outcome(attempt: Attempt, scene: _Scene, pipes: output.Output) -> Outcome:
    """The judgement in its order: finished, stopped from outside, superseded, failed."""
    failed = _failed_ranks(scene)
    if not failed and len(scene.exits) == len(scene.pids) and scene.reason is None:
        remarks = tuple(
            f"rank {rank} was ended by {signal.Signals(-code).name} after its script had finished"
            for rank, (code, _) in sorted(scene.exits.items())
            if code < 0
        )
        return Succeeded(attempt, remarks)
    stops = [number for number in scene.signals if number in STOPS]
    if stops:
        return Interrupted(attempt, stops[0])
    if scene.reason == "superseded":
        return Superseded(attempt, Seen(scene.observed, scene.model))
    records = [_completed(scene, rank, pipes) for rank in sorted(scene.exits)]
    told = sorted((one for one in records if one), key=lambda one: one.at)
    return Failed(attempt, tuple(told), Seen(scene.observed, scene.model))


def _completed(scene: _Scene, rank: int, pipes: output.Output) -> FailureRecord | None:
    """A rank's record, or one made from its exit; None where it ended well or by our own hand."""
    code, seen = scene.exits[rank]
    told = scene.records.get(rank)
    killed = oom_kills() - scene.oom_kills
    if told is not None:
        return replace(told, oom_kills=killed, log_tail=pipes.tail(rank))
    ended_well = code == 0 or (code < 0 and rank in scene.finished)
    if ended_well or -code in scene.stops.told.get(rank, set()):
        return None
    return FailureRecord(
        rank=rank,
        at=seen,
        exit_code=128 - code if code < 0 else code,
        signal=-code if code < 0 else None,
        oom_kills=killed,
        log_tail=pipes.tail(rank),
    )
