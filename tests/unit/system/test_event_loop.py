"""The order and time of the event loop's handlers."""

from __future__ import annotations

import os
import time

import pytest
from safe_launch.system.event_loop import EventLoop


def test_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer fires once when it is due; a new time replaces the old one."""
    called: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with EventLoop() as loop:

        def first() -> None:
            called.append("first")

        loop.after(60.0, first)
        loop.after(0.02, first)
        loop.after(0.2, lambda: called.append("second"))
        for clock[0], expected in ((0.01, []), (0.1, ["first"]), (0.3, ["first", "second"])):
            loop.wait(0.0)
            assert called == expected
        loop.wait(0.0)
        assert called == expected


def test_a_wait_ends_when_a_timer_is_due() -> None:
    """A longer timeout doesn't delay it."""
    called: list[str] = []
    with EventLoop() as loop:
        loop.after(0.02, lambda: called.append("due"))
        while not called:
            loop.wait(None)
    assert called == ["due"]


def test_events_come_before_timers() -> None:
    """Events that arrived in time count, even if they are read late."""
    called: list[str] = []
    out, into = os.pipe()
    with EventLoop() as loop:
        loop.on_readable(out, lambda: called.append("came"))
        loop.after(0.0, lambda: called.append("due"))
        os.write(into, b"x")
        loop.wait(None)
    assert called == ["came", "due"]
    os.close(out)
    os.close(into)
