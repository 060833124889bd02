"""Inspects the call stack for packages and for lines of the user's code."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from ..evidence.from_exception import is_launcher_code

LOOPS = ("transformers", "lightning", "lightning_fabric", "pytorch_lightning")
"""Packages that run the training loop for the user."""
MAKERS = ("accelerate", *LOOPS)
"""Packages that create engines and run backward passes for the user."""
FRAMEWORKS = (*MAKERS, "deepspeed")
"""Packages whose steps, passes and files aren't the user's."""
_PYTHON = f"{sysconfig.get_path('stdlib')}/"


def is_called_by(*names: str) -> bool:
    """Whether a function of one of these packages or modules is on this thread's stack."""
    beginnings = tuple(f"{name}." for name in names)
    frame = sys._getframe(1)  # inspect.stack() would read the sources
    while frame is not None:
        if f"{frame.f_globals.get('__name__')}.".startswith(beginnings):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def user_frames() -> Iterator[tuple[str, int]]:
    """File and line of the user's frames, innermost first."""
    return ((frame.f_code.co_filename, frame.f_lineno) for frame in _user_frames())


def calling_frame(beyond: Collection[str] = ()) -> FrameType | None:
    """The user's frame that has called a wrapped function itself; None if other code has.

    Args:
        beyond: files of the function, if its frames are on the stack.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not (is_launcher_code(file) or file in beyond):
            break
        frame = frame.f_back
    return frame if frame is next(_user_frames(), None) else None


def user_codes() -> Iterator[CodeType]:
    """The code of the user's frames, innermost first."""
    return (frame.f_code for frame in _user_frames())


def user_values() -> Iterator[Mapping[str, Any]]:
    """Local variables of the user's frames, innermost first."""
    return (frame.f_locals for frame in _user_frames())


def _user_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not (is_launcher_code(file) or "-packages/" in file or file.startswith(("<", _PYTHON))):
            yield frame
        frame = frame.f_back


def user_place() -> str:
    """Location of the user's innermost frame; empty if there is none."""
    return next((place(*frame) for frame in user_frames()), "")


def place(file: str, line: int) -> str:
    """Formats `file:line`, relative to the current folder if the file is below it."""
    with suppress(OSError, ValueError):
        file = str(Path(file).relative_to(Path.cwd()))
    return f"{file}:{line}"


def place_of(function: Any) -> str:
    """Location of a function's source."""
    return place(inspect.getsourcefile(function) or "", inspect.getsourcelines(function)[1])
