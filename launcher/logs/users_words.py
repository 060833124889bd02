"""Finds a user's report around a log that the run ended or hangs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..diagnosis.next_step.users_report import ENDED, STANDS
from .progress_signs import STEP, Written

AROUND = 3
"""Lines to search at either end of a log."""
LOGGED = re.compile(r"\d\d:\d\d:\d\d|\b(?:INFO|DEBUG|WARN\w*|ERROR)\b|[{}=]|^\W*\[|^\s*#")
"""Words of a program instead."""
DOUBTED = re.compile(r"\b(?:may|might|can|could|avoid|if|seems?|looks?)\b|\?\?", re.IGNORECASE)


def users_words(first: Sequence[Written], last: Sequence[Written]) -> Written | None:
    """A user's sentence that the run ended by itself or hangs, if any.

    A sentence above steps at the log's end may be about another run.

    Args:
        first: the first lines of the log.
        last: its last lines.
    """
    above = () if any(STEP.search(line.text) for line in last) else first[:AROUND]
    for line in (*last[-AROUND:], *above):
        is_prose = not LOGGED.search(line.text) and not DOUBTED.search(line.text)
        if is_prose and (ENDED.search(line.text) or STANDS.search(line.text)):
            return line
    return None
