"""Signals as events: collected, waited for, restored."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys

import pytest
from safe_launch.system import unix_sockets
from safe_launch.system.event_loop import EventLoop
from safe_launch.system.signals import ENDING, REPORT, SignalWakeup, StoppedError


def is_readable(source: SignalWakeup) -> bool:
    """Whether a selector would return at once."""
    return bool(select.select([source], [], [], 0)[0])


def test_signals_are_taken_once() -> None:
    """In order; all of them are remembered."""
    with SignalWakeup((signal.SIGUSR1, signal.SIGTERM)) as wakeup:
        assert wakeup.taken() == []
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1):
            signal.raise_signal(number)
        assert is_readable(wakeup)
        assert wakeup.taken() == [signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1]
        assert not is_readable(wakeup)
        signal.raise_signal(signal.SIGTERM)
        assert wakeup.taken() == [signal.SIGTERM]
        assert len(wakeup.arrived) == 4


def test_earlier_handlers_come_back() -> None:
    """Even if others were installed meanwhile; `install` takes over again."""
    before = signal.getsignal(signal.SIGUSR1)
    with SignalWakeup((signal.SIGUSR1,)) as wakeup:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        wakeup.install()
        signal.raise_signal(signal.SIGUSR1)
        assert wakeup.arrived == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_the_signals_that_stop_a_run() -> None:
    """Signals from a terminal, a scheduler and a person."""
    assert set(ENDING) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def test_handlers_are_called_for_what_has_happened() -> None:
    """For readable descriptors and for ended processes, which aren't reaped."""
    calls: list[str] = []
    reader, writer = os.pipe()
    with EventLoop() as loop, subprocess.Popen((sys.executable, "-c", "input()"), stdin=-1) as one:
        loop.on_readable(reader, lambda: calls.append(os.read(reader, 10).decode()))
        loop.on_end(one.pid, lambda: calls.append("ended"))
        loop.wait(0)
        assert calls == []
        os.write(writer, b"x")
        loop.wait(None)
        assert calls == ["x"]
        loop.forget(reader)
        os.write(writer, b"y")
        one.communicate(b"\n")
        loop.wait(None)
        assert calls == ["x", "ended"]
    os.close(reader)
    os.close(writer)


def test_a_loop_closes_what_it_has_opened() -> None:
    """The pidfds of running processes."""
    before = set(os.listdir("/proc/self/fd"))
    with subprocess.Popen(("sleep", "600")) as process:
        with EventLoop() as loop:
            loop.on_end(process.pid, list)
        process.kill()
    assert set(os.listdir("/proc/self/fd")) == before


def test_who_is_at_the_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer's pid; another user's connection is closed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0safe-launch-test-{os.getpid()}")
        listener.listen()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(listener.getsockname())
            accepted = unix_sockets.accept(listener)
            assert accepted is not None
            assert accepted[1] == os.getpid()
            accepted[0].close()
        monkeypatch.setattr("os.getuid", lambda: -1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(listener.getsockname())
            assert unix_sockets.accept(listener) is None
            assert client.recv(1) == b""


def test_a_stop_ends_a_wait_and_is_told_again() -> None:
    """Other signals don't end it; a later query returns both."""
    reader, writer = socket.socketpair()
    with reader, writer, SignalWakeup((*ENDING, REPORT)) as wakeup:
        assert not wakeup.wait_for(reader, 0.0)
        signal.raise_signal(REPORT)
        assert not wakeup.wait_for(reader, 0.01)
        writer.send(b"x")
        assert wakeup.wait_for(reader, 60.0)
        reader.recv(1)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StoppedError):
            wakeup.wait_for(reader, 60.0)
        assert is_readable(wakeup)
        assert wakeup.taken() == [REPORT, signal.SIGTERM]
        assert not is_readable(wakeup)
