"""When the handlers of the event loop are called."""

from __future__ import annotations

import os
import time

from safe_launch.system.event_loop import EventLoop


def test_timers() -> None:
    """A wait ends when one is due; each is called once, and a new time replaces the old one."""
    called: list[str] = []
    with EventLoop() as loop:

        def first() -> None:
            called.append("first")

        loop.after(60.0, first)
        loop.after(0.02, first)
        loop.after(0.2, lambda: called.append("second"))
        began = time.monotonic()
        for expected in (["first"], ["first", "second"]):
            loop.wait(60.0)
            assert called == expected
        loop.wait(0.0)
        assert called == expected
        assert 0.2 <= time.monotonic() - began < 30.0


def test_events_come_before_timers() -> None:
    """What has come in time counts, even if nobody has looked for a while."""
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
