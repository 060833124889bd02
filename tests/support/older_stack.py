"""Which tests of the older stack a run has: a fifth, drawn by the commit; all where it is asked.

Every commit draws another fifth, and the same commit always the same one. A record says when all
were run last: `scripts/test --all --older` writes it.
"""

from __future__ import annotations

import os

import pytest

from support.draws import commit, draw
from support.stacks import OLDER, ROOT

PARTS = 5
VARIABLE = "SAFE_LAUNCH_OLDER_STACK"
RECORD = ROOT / "tests" / "older-stack.txt"


def is_drawn(item: pytest.Item) -> bool:
    """Whether a test is in this run: it isn't on the older stack, or is one of the fifth."""
    if is_whole() or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    if OLDER not in item.callspec.params.values():
        return True
    return draw(item.nodeid) % PARTS == 0


def is_whole() -> bool:
    """Whether all of them are run."""
    return os.environ.get(VARIABLE) == "all"


def described() -> str:
    """A line for people."""
    last = RECORD.read_text().strip() if RECORD.exists() else "no run of all is recorded"
    if is_whole():
        return f"older stack: all tests (before: {last})"
    return (
        f"older stack: a fifth of the tests, drawn by commit {commit() or 'unknown'}; "
        f"{VARIABLE}=all runs all ({last})"
    )
