"""When workers are stopped, and what the other nodes are told of that."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from ..core.request import LaunchRequest, StopTimes
from ..nodes.messages import Failing, Signalled, Stop
from ..nodes.peers import Peers
from .attempt_state import Scene


def tell(peers: Peers, message: Stop | Failing | Signalled, times: StopTimes) -> None:
    """Tells the other nodes, and sets how long they may take to answer."""
    peers.tell(message)
    patience = times.leave + times.interrupt + times.terminate + peers.silence
    peers.deadline = time.monotonic() + patience


def give_time(scene: Scene, times: StopTimes) -> None:
    """A rank that fails may tell its failure and run its exit handlers, but not for ever."""
    leaving = scene.alive & scene.failing.keys() - scene.stops.planned
    kill = (signal.SIGKILL, times.leave + times.terminate)
    scene.stops.schedule(leaving, (signal.SIGTERM, times.leave), kill)


def after_failure(scene: Scene, times: StopTimes) -> None:
    """The ranks that go on, or wait for the failed one, end at once."""
    kill = (signal.SIGKILL, times.leave + times.terminate)
    scene.stops.schedule(scene.alive - scene.failing.keys(), (signal.SIGTERM, 0.0), kill)


def answer(
    scene: Scene,
    number: signal.Signals,
    request: LaunchRequest,
    notice: Callable[[str], None],
    peers: Peers,
) -> None:
    """What a signal to the launcher does: a repeated stop goes on to the next, harder step."""
    times = request.worker_options.stop_times
    if number in request.worker_options.forwarded:
        for rank in sorted(scene.alive):
            if scene.stops.catches(rank, number):
                scene.stops.send(rank, number)
            else:
                notice(f"{number.name} isn't passed on: rank {rank} has no handler for it")
    elif scene.reason == "interrupt":
        if len(scene.own_stops) > 1:
            scene.stops.hasten()
            again = Stop(number, True) if peers.is_head else Signalled(number, True)
            peers.tell(again)
    else:
        notice(f"{number.name}: stopping the workers")
        interrupt(scene, number, times)
        tell(peers, Stop(number) if peers.is_head else Signalled(number), times)


def interrupt(scene: Scene, number: signal.Signals, times: StopTimes) -> None:
    """Begins to stop the workers as a signal to a launcher asks for."""
    scene.reason = "interrupt"
    scene.stops.deadlines.clear()
    steps = [(number, 0.0)]
    if number == signal.SIGINT:
        steps.append((signal.SIGTERM, times.interrupt))
    scene.stops.schedule(scene.alive, *steps, (signal.SIGKILL, steps[-1][1] + times.terminate))
