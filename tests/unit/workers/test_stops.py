"""Which signals workers get, when, and the messages if they keep running."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise, product

import pytest
from safe_launch.core.request import StopTimes
from safe_launch.workers import stops
from safe_launch.workers.stops import STOPPING, TRANSITIONS, AttemptState, Progress, StopSignals
from support.tables import table

TIMES = StopTimes(leave=1.0, interrupt=2.0, terminate=4.0)
INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
RUNNING, FINISHED = AttemptState.RUNNING, AttemptState.FINISHED
FAILED, INTERRUPTED = AttemptState.FAILED, AttemptState.INTERRUPTED


def test_the_steps_of_each_stop() -> None:
    """Delays in seconds; SIGKILL is always last."""
    assert stops.after_failure(TIMES) == ((TERM, 1.0), (KILL, 5.0))
    assert stops.after_failure_elsewhere(TIMES) == ((TERM, 0.0), (KILL, 5.0))
    assert stops.superseded(TIMES) == ((TERM, 0.0), (KILL, 4.0))
    assert stops.interrupted(INT, TIMES) == ((INT, 0.0), (TERM, 2.0), (KILL, 6.0))
    for number in (TERM, signal.SIGHUP, signal.SIGQUIT):
        assert stops.interrupted(number, TIMES) == ((number, 0.0), (KILL, 4.0))
    assert stops.patience(TIMES, 8.0) == 15.0


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


@table(("before", "after"), product(AttemptState, AttemptState))
def test_what_may_follow(before: AttemptState, after: AttemptState) -> None:
    """Transitions in the table succeed; others raise and change no state."""
    progress = Progress([before])
    if after in TRANSITIONS[before]:
        progress.enter(after)
        assert progress.state is after
    else:
        with pytest.raises(RuntimeError, match=f"that is {before} can't become {after}"):
            progress.enter(after)
        assert progress.state is before


@pytest.mark.parametrize(
    "states",
    [
        [RUNNING, FINISHED],
        [RUNNING, FINISHED, FAILED, INTERRUPTED],
        [RUNNING, AttemptState.SUPERSEDED, INTERRUPTED],
        [RUNNING, AttemptState.BROKEN, INTERRUPTED],
    ],
)
def test_courses_that_happen(states: list[AttemptState]) -> None:
    """A finished node stays finished, whatever happens on the others."""
    progress = Progress()
    for before, after in pairwise(states):
        assert progress.state is before
        progress.enter(after)
    assert progress.has_finished == (FINISHED in states)
    assert progress.is_stopping == (states[-1] in STOPPING)


def test_nothing_goes_back() -> None:
    """No course is endless: a signal ends every one."""
    assert not TRANSITIONS[INTERRUPTED]
    assert all(RUNNING not in following for following in TRANSITIONS.values())
