"""Starts a launcher on every host over ssh, and combines their exit codes."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from ...core.errors import ExitCode
from ...options.hostfile import Host
from ...options.node_options import Shell
from ...system.signals import REPORT, STOPS
from . import remote_main
from .connection import LEAVING, Connection, Event, connect, place, refused

ANSWER = 120.0
"""Seconds within which every host must have answered."""
KEPT = 3.0
"""Seconds after which a failed host's kept output is printed if the others still run."""
SIGNALS = (*STOPS, REPORT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are passed on to the launchers."""


def run(
    hosts: Sequence[Host],
    source: str,
    shell: Shell,
    run_id: str,
    jobs: Callable[[Sequence[str]], Sequence[remote_main.Job]],
    patience: float,
    notice: Callable[..., None],
    forwarded: Sequence[int] = (),
) -> int:
    """Starts the jobs once all hosts have answered; returns the exit code of the launch.

    Args:
        hosts: in the order of their ranks.
        source: name of the hostfile, for messages.
        shell: the ssh options.
        run_id: a name for the run: letters, digits and dashes.
        jobs: makes the job of each host from the addresses at which ssh reached them.
        patience: seconds that the other hosts get to end by themselves when one has failed, so that
            the nodes can agree on a diagnosis.
        notice: called with lines that the user should see.
        forwarded: further signals to pass on, after which the training continues.

    Raises:
        LaunchError: a host can't be reached or can't run the launcher; nothing has been started.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    numbers = (*SIGNALS, *forwarded)
    earlier = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, lambda number, _: events.put(Event("signal", -1, str(number))))
    connections: list[Connection] = []
    try:
        for index, host in enumerate(hosts):
            connections.append(connect(host, index, shell, run_id, events))
        threading.Thread(target=_beat, args=(connections,), daemon=True).start()
        stopped = _gather(connections, events)
        if stopped is not None:
            return 128 + stopped
        silent = [
            connection
            for connection in connections
            if "ready" not in connection.heard or "gone" in connection.heard
        ]
        if silent:
            raise refused(silent, source)
        for connection, job in zip(
            connections, jobs([connection.address for connection in connections]), strict=True
        ):
            connection.send(remote_main.job_line(job))
        return _attend(connections, events, source, patience, notice)
    finally:
        for connection in connections:
            connection.part()
        end = time.monotonic() + LEAVING
        for connection in connections:
            connection.end(max(0.0, end - time.monotonic()))
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _beat(connections: Sequence[Connection]) -> None:
    """Sends all hosts heartbeats as long as this process lives."""
    while True:
        time.sleep(remote_main.BEAT)
        for connection in connections:
            connection.send(b"\n")


def _gather(connections: Sequence[Connection], events: queue.SimpleQueue[Event]) -> int | None:
    """Waits until every host has answered or failed; returns a signal that interrupted it."""
    end = time.monotonic() + ANSWER
    while not all(connection.heard for connection in connections):
        try:
            event = events.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        if event.kind != "signal":
            connections[event.host].note(event)
        elif int(event.text) in STOPS:
            for connection in connections:
                connection.process.terminate()
            return int(event.text)
    return None


def _attend(
    connections: Sequence[Connection],
    events: queue.SimpleQueue[Event],
    source: str,
    patience: float,
    notice: Callable[..., None],
) -> int:
    """Passes signals on until all hosts have ended; stops the others if a host has failed.

    The exit code is the first host's. If the connection to it was lost, or it was stopped because
    another host failed, that host's code counts.
    """
    culprit: Connection | None = None
    steps: list[tuple[float, Callable[[], None]]] = []
    is_stopping = was_stopped = False

    def print_kept(*hosts: Connection) -> None:
        for host in hosts:
            lines = [host.kept.popleft() for _ in range(len(host.kept))]
            notice(*(f"{host.host.name}: {line}" for line in lines))

    def stop() -> None:
        nonlocal is_stopping
        is_stopping = True
        left = [connection for connection in connections if "gone" not in connection.heard]
        notice(f"stopping {', '.join(connection.host.name for connection in left)}")
        for connection in left:
            connection.send(remote_main.signal_line(signal.SIGTERM))

    while not all("gone" in connection.heard for connection in connections):
        try:
            event = events.get(timeout=max(0.0, steps[0][0] - time.monotonic()) if steps else None)
        except queue.Empty:
            steps.pop(0)[1]()
            continue
        if event.kind == "signal":
            for connection in connections:
                connection.send(remote_main.signal_line(int(event.text)))
            if int(event.text) in STOPS:
                was_stopped = True
                steps.clear()
            continue
        connection = connections[event.host]
        connection.note(event)
        is_lost = connection.code is None and "gone" in connection.heard
        if is_lost:
            notice(f"lost the connection to {place(connection.host, source)}")
        if culprit is None and not was_stopped and (is_lost or connection.code):
            culprit = connection
            now, had_begun = time.monotonic(), "started" in connection.heard
            delays = (KEPT, patience) if had_begun else (0.0, 0.0)
            steps = [(now + delays[0], partial(print_kept, connection)), (now + delays[1], stop)]
    print_kept(
        *(connection for connection in connections if connection.code != connections[0].code)
    )
    decisive = culprit if culprit is not None and is_stopping else connections[0]
    return ExitCode.RETRY_ELSEWHERE if decisive.code is None else decisive.code
