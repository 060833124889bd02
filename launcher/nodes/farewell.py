"""A launcher that can't take part informs the other launchers before it ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from msgspec import structs

from ..core.errors import ExitCode, LaunchError
from ..core.placement import Placement
from .admission import LONGEST, clock, dismiss
from .connection import next_message
from .joining import Refusal, Unable
from .rendezvous import find_node_0, listener_of_head
from .secret import Trust


@contextmanager
def on_failure(placement: Placement, trust: Trust, say: Callable[[str], None]) -> Iterator[None]:
    """Informs the other launchers if the block fails, before they meet this one."""
    try:
        yield
    except LaunchError as error:
        _inform(placement, trust, Refusal(error.code, error.problem, error.hint), say)
        raise
    except Exception as error:
        problem = f"safe-launch itself failed: {type(error).__name__}: {error}"
        _inform(placement, trust, Refusal(ExitCode.INTERNAL, problem), say)
        raise


def _inform(placement: Placement, trust: Trust, why: Refusal, say: Callable[[str], None]) -> None:
    if placement.is_alone:
        return
    longest = min(LONGEST, placement.times.join)
    brief = replace(placement, times=replace(placement.times, join=longest))
    try:
        listener = listener_of_head(brief, trust)
        if listener is not None:
            problem = f"node 0 ({socket.gethostname()}) can't take part: {why.problem}"
            say(problem)
            dismiss(listener, brief, structs.replace(why, problem=problem), set(), say)
            listener.close()
        else:
            _inform_node_0(brief, trust, why, say)
    except LaunchError as error:
        say(f"the other nodes can't be informed: {error.problem}")


def _inform_node_0(
    placement: Placement, trust: Trust, why: Refusal, say: Callable[[str], None]
) -> None:
    """Informs node 0, and waits until it has answered.

    Raises:
        LaunchError: it isn't found in time.
    """
    end = time.monotonic() + placement.times.join
    where = f"node 0 ({placement.address}:{placement.port})"
    until = clock(placement.times.join)
    say(f"this node can't take part: {why.problem}; informing {where}, until {until} at most")
    rank = None if placement.may_join else placement.rank  # another launcher here is node 0
    unable = Unable(placement.job, rank, socket.gethostname(), why.code, why.problem, why.hint)
    connection = find_node_0(placement, trust, say)
    connection.send(unable)
    next_message(connection, end - time.monotonic())
    connection.close()
