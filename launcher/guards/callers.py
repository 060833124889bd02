"""Whose code has led to a boundary, by the packages of the calls that are under way."""

from __future__ import annotations

import sys


def is_called_by(*packages: str) -> bool:
    """Whether a call of one of these packages is under way in this thread."""
    frame = sys._getframe(1)  # inspect.stack() would read the sources
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
