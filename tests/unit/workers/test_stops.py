"""Which signals workers get, when, and the messages if they keep running."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from safe_launch.core.request import StopTimes
from safe_launch.workers import stop_policy
from safe_launch.workers.stop_signals import StopSignals

TIMES = StopTimes(leave=1.0, interrupt=2.0, terminate=4.0)
INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


def test_the_steps_of_each_stop() -> None:
    """Delays in seconds; SIGKILL is always last."""
    assert stop_policy.after_failure(TIMES) == ((TERM, 1.0), (KILL, 5.0))
    assert stop_policy.after_failure_elsewhere(TIMES) == ((TERM, 0.0), (KILL, 5.0))
    assert stop_policy.superseded(TIMES) == ((TERM, 0.0), (KILL, 4.0))
    assert stop_policy.interrupted(INT, TIMES) == ((INT, 0.0), (TERM, 2.0), (KILL, 6.0))
    for number in (TERM, signal.SIGHUP, signal.SIGQUIT):
        assert stop_policy.interrupted(number, TIMES) == ((number, 0.0), (KILL, 4.0))
    assert stop_policy.patience(TIMES, 8.0) == 15.0


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """A group leader that catches SIGUSR1 only, once it has printed a line."""
    program = (
        "import signal\n"
        "signal.signal(signal.SIGUSR1, print)\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "print(flush=True)\n"
        "while True: signal.pause()"
    )
    command = (sys.executable, "-c", program)
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_what_is_due_is_sent(
    worker: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later signals stay planned."""
    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    stops, notices = StopSignals({3: worker.pid}), list[str]()
    assert stops.pause() is None
    stops.schedule({3}, ((TERM, 0.0), (KILL, 1000.0)))
    assert stops.planned == {3}
    assert stops.pause() == 0.0
    stops.send_due({3}, notices.append)
    assert worker.wait() == -TERM
    assert stops.sent == {3: {TERM}}
    assert not notices
    assert stops.pause() == 1000.0
    stops.send_due(set(), notices.append)  # an ended worker gets no further signals
    assert not stops.planned


def test_who_runs_on_is_named(worker: subprocess.Popen[str]) -> None:
    """After signals that should end it; others aren't meant to."""
    stops, notices = StopSignals({3: worker.pid}), list[str]()
    stops.sent[3] = {signal.SIGUSR1}
    stops.schedule({3}, ((signal.SIGUSR1, 0.0),))
    stops.send_due({3}, notices.append)
    assert not notices
    stops.sent[3] = {INT, TERM}
    stops.schedule({3}, ((KILL, 0.0),))
    stops.send_due({3}, notices.append)
    assert notices == ["rank 3 is still running after SIGINT, SIGTERM: sending SIGKILL"]
    assert worker.wait() == -KILL


def test_hastening_moves_everything_forward() -> None:
    """The next step is due now; later pauses keep their length."""
    stops = StopSignals({})
    stops.hasten()
    stops.schedule({0}, ((TERM, 100.0), (KILL, 130.0)))
    stops.hasten()
    first, second = sorted(stops.deadlines)
    assert stops.pause() == 0.0
    assert second[0] - first[0] == pytest.approx(30.0)


def test_a_process_that_is_gone() -> None:
    """It gets no signal and has no handlers."""
    process = subprocess.Popen(("true",))
    process.wait()
    stops = StopSignals({0: process.pid})
    stops.send(0, TERM)
    assert not stops.catches(0, signal.SIGUSR1)


def test_which_signals_have_a_handler(worker: subprocess.Popen[str]) -> None:
    """The kernel's list of the process's handlers."""
    stops = StopSignals({0: worker.pid})
    assert stops.catches(0, signal.SIGUSR1)
    assert not stops.catches(0, signal.SIGUSR2)
