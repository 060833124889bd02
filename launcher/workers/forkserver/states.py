"""The states of the fork server as the launcher sees it, and their transitions."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum


class State(StrEnum):
    """The process from which workers can be forked."""

    NONE = "none"
    """None: no process is running."""
    IMPORTING = "importing"
    """None yet: the server is running the script's imports."""
    READY = "ready"
    """The server."""
    COPY_IMPORTING = "copy importing"
    """The server; soon its copy, which is repeating a worker's later imports."""
    COPY_READY = "copy ready"
    """The copy."""
    COPY_REFUSED = "copy refused"
    """The server; no further copy is made."""


TRANSITIONS: Mapping[State, Set[State]] = {
    State.NONE: {State.NONE, State.IMPORTING},
    State.IMPORTING: {State.NONE, State.READY},
    State.READY: {State.NONE, State.COPY_IMPORTING},
    State.COPY_IMPORTING: {State.NONE, State.COPY_READY, State.COPY_REFUSED},
    State.COPY_READY: {State.NONE, State.COPY_REFUSED},
    State.COPY_REFUSED: {State.NONE},
}
"""The states that may follow each state; any state may end."""
