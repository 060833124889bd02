"""Positions of the ranks of a hanging run, in words."""

from __future__ import annotations

import re

from ..core.quotation import cleaned
from ..evidence.failure_record import Frame
from ..hangs.places import shown_frame, waiting_function, without_wrappers
from ..hangs.report import collective_text
from ..hangs.standing import Standing
from ..progress.board import Phase
from .explain_failure import short

LONGEST = 160
"""Characters of a source line that are shown."""
PHASES = {
    Phase.STARTING: "starting",
    Phase.LOADING: "before its first step",
    Phase.EVALUATION: "in evaluation",
    Phase.SAVING: "saving",
    Phase.ENDED: "at the end of its script",
}
"""Phases that are shown beside a place; training isn't mentioned."""


def place_text(standing: Standing) -> str:
    """A rank's position: the user's line with its text, then the waiting call."""
    frame = shown_frame(standing)
    if frame is None:
        return _without_stack(standing)
    text = line_text(frame)
    inner = without_wrappers(standing.frames)[-1]
    call = waiting_function(standing.frames)
    if inner is not frame:
        text += f"\nin {call or cleaned(inner.function)} ({spot(inner)})"
    if standing.phase in PHASES and (standing.step is not None or standing.phase > Phase.LOADING):
        text += f"\n{PHASES[standing.phase]}"
    return text


def short_place(standing: Standing) -> str:
    """The user's function and line, else the innermost ones."""
    frame = shown_frame(standing)
    if frame is None:
        return _without_stack(standing)
    name = "" if frame.function == "<module>" else f"in {cleaned(frame.function)} "
    return f"{name}at {spot(frame)}"


def _without_stack(standing: Standing) -> str:
    if standing.state in ("", "Z", "X"):
        if standing.phase is Phase.ENDED:
            return "its script has ended, and so has its process"
        return "its process is gone" if standing.pid else "it can't be reached"
    if standing.state == "T":
        return "its process is stopped"
    if standing.phase is Phase.ENDED:
        return "its script has ended"
    if standing.pending:
        return f"waiting in {collective_text(standing.pending[0])}"
    done = [entry for entry in standing.collectives or () if not entry.is_message]
    if done:
        return f"its last collective, which is done, was {collective_text(done[-1])}"
    return "not known"


def line_text(frame: Frame) -> str:
    """A frame's place, function and source line."""
    source = cleaned(frame.source)[:LONGEST]
    return f"{spot(frame)} in {cleaned(frame.function)}" + (f": {source}" if source else "")


def spot(frame: Frame) -> str:
    """File and line; an installed file from its package on."""
    path = re.split(r"/(?:site|dist)-packages/", frame.file)[-1]
    return f"{cleaned(short(path))}:{frame.line}"
