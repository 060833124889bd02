"""Waiting for something to happen, on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 600.0
"""Seconds after which a test hangs: a safety net, far beyond what a busy machine takes."""


def wait_for(
    condition: Callable[[], object], words: Callable[[], object] = str, seconds: float = LONG
) -> None:
    """Waits until a condition holds.

    Args:
        condition: what is awaited.
        words: what is said where that takes far too long.
        seconds: what counts as far too long.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain\n{words()}"
        time.sleep(0.02)
