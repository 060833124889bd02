"""The answers of a script that was asked for its plan, in rows of text."""

from __future__ import annotations

from ..core.script import Ending, ScriptAnswers
from ..system.terminal import Row

NAMED = 5
"""Files that are named at most."""


def rows(answers: ScriptAnswers) -> list[Row]:
    """Rows on the script's progress and the consequences."""
    result = [("asked", f"{answers.script}, in one process: {_how(answers)}")]
    if answers.written:
        others = len(answers.written) - NAMED
        more = f" and {others} more" if others > 0 else ""
        result.append(("wrote", f"{', '.join(answers.written[:NAMED])}{more}"))
    if answers.lacking:
        text = (
            f"no {answers.lacking} is here: what {answers.script} decides by its devices may differ"
        )
        result.append(("note", text))
    return result


def _how(answers: ScriptAnswers) -> str:
    seconds, where = f"{answers.seconds:.1f} s", answers.where
    so_far = "the plan uses its answers so far"
    match answers.ending:
        case Ending.WHOLE:
            return f"{seconds}, up to {where}"
        case Ending.CUT:
            return f"{seconds}, up to {where}: {answers.why}; {so_far}"
        case Ending.LATE:
            last = f"last question at {where}; {so_far}" if where else "it had answered nothing"
            return f"ended after {answers.seconds:.0f} s, the limit; {last}"
        case Ending.OVER:
            return f"{seconds}; it ran to its end without a training that reports its settings"
        case Ending.FAILED:
            return f"failed after {seconds}: {answers.why}; {so_far}"
