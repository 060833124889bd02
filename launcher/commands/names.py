"""Finds a run or a lesson by a part of its name."""

from __future__ import annotations

from collections.abc import Collection

from ..core.count_of import count_of
from ..core.errors import LaunchError

LISTED = 5
"""Names that a message lists, at most."""


def meant(text: str, names: Collection[str], kind: str, preferred: Collection[str] = ()) -> str:
    """The name that a text is, or is a part of; empty if there is none.

    The `preferred` names take precedence if the text is a part of several; messages use `kind`.

    Raises:
        LaunchError: it is a part of several, or empty, and so a part of all.
    """
    if not text.strip():
        problem = f"the name of the {kind} is empty"
        raise LaunchError(problem, f"is a variable unset? `safe-launch {kind}s` lists the names")
    if text in names:
        return text
    matching = [name for name in names if text in name]
    chosen = [name for name in matching if name in preferred] or matching
    if len(chosen) < 2:
        return "".join(chosen)
    listed = ", ".join(chosen[:LISTED]) + (", ..." if len(chosen) > LISTED else "")
    problem = f"`{text}` is a part of the names of {count_of(len(chosen), kind)}: {listed}"
    raise LaunchError(problem, "give more of the name")
