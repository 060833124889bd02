"""The answers of a script that was asked for its plan, in rows of text."""

from __future__ import annotations

from ..core.asked import Asked, Ending
from ..core.row import Row

NAMED = 5
"""Files that are named at most."""


def rows(asked: Asked) -> list[Row]:
    """Rows on the script's progress and the consequences."""
    found = [("asked", f"{asked.script}, in one process: {_how(asked)}")]
    if asked.written:
        others = len(asked.written) - NAMED
        more = f" and {others} more" if others > 0 else ""
        found.append(("wrote", f"{', '.join(asked.written[:NAMED])}{more}"))
    if asked.lacking:
        text = f"no {asked.lacking} is here: what {asked.script} decides by its devices may differ"
        found.append(("note", text))
    return found


def _how(asked: Asked) -> str:
    seconds, where = f"{asked.seconds:.1f} s", asked.where
    so_far = "the plan uses its answers so far"
    match asked.ending:
        case Ending.WHOLE:
            return f"{seconds}, up to {where}"
        case Ending.CUT:
            return f"{seconds}, up to {where}: {asked.why}; {so_far}"
        case Ending.LATE:
            last = f"last question at {where}; {so_far}" if where else "it had answered nothing"
            return f"ended after {asked.seconds:.0f} s, the limit; {last}"
        case Ending.OVER:
            return f"{seconds}; it ran to its end without a training that reports its settings"
        case Ending.FAILED:
            return f"failed after {seconds}: {asked.why}; {so_far}"
