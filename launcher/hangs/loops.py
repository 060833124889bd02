"""Detects ranks that left a loop of other ranks, from stacks and source files."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ..evidence.failure_record import Frame
from ..system import regular_files

_LIBRARY = re.compile(r"/(torch|deepspeed|accelerate)/")
"""Libraries whose loops are over buckets and parameters, not over batches."""
LONGEST = 2 << 20
"""Maximum bytes of a source file; larger ones aren't training loops."""


def has_left(left: Sequence[Frame], inside: Sequence[Frame], *, deep: bool = False) -> bool | None:
    """Whether a rank is outside of another rank's loop.

    Both stacks are equal up to the point where they diverge.

    Args:
        left: stack of the rank that may have left, outermost first.
        inside: stack of the other rank.
        deep: also count loops in functions of only the other rank.

    Returns:
        None if the stacks or the file don't show it.
    """
    for depth, (mine, others) in enumerate(zip(left, inside, strict=False)):
        if (mine.file, mine.function) != (others.file, others.function):
            return None
        if mine.line != others.line:
            loops = _loops(mine.file)
            if loops is None:
                return None
            if any(others.line in loop and mine.line not in loop for loop in loops):
                return True
            if not deep:
                return False
            below = [frame for frame in inside[depth + 1 :] if not _LIBRARY.search(frame.file)]
            return any(frame.line in loop for frame in below for loop in _loops(frame.file) or ())
    return None


@lru_cache(maxsize=64)
def _loops(file: str) -> tuple[range, ...] | None:
    """The lines of each loop of a file; None if it can't be read as Python."""
    try:
        tree = ast.parse(regular_files.read(Path(file), LONGEST))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return tuple(
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor)
    )
