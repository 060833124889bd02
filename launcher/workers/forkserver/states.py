"""The states of the fork server as its launcher sees it, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum


class State(StrEnum):
    """What workers can be forked from."""

    NONE = "none"
    """Nothing: there is no process."""
    IMPORTING = "importing"
    """Soon from the server, which imports what the script imports."""
    READY = "ready"
    """The server."""
    COPY_IMPORTING = "copy importing"
    """The server; soon from a copy of it, which imports what a worker has imported later."""
    COPY_READY = "copy ready"
    """The copy."""
    COPY_REFUSED = "copy refused"
    """The server; no copy is made any more."""


TRANSITIONS: Mapping[State, Set[State]] = {
    State.NONE: {State.NONE, State.IMPORTING},
    State.IMPORTING: {State.NONE, State.READY},
    State.READY: {State.NONE, State.COPY_IMPORTING},
    State.COPY_IMPORTING: {State.NONE, State.COPY_READY, State.COPY_REFUSED},
    State.COPY_READY: {State.NONE, State.COPY_REFUSED},
    State.COPY_REFUSED: {State.NONE},
}
"""What may follow each state; every one may end."""
