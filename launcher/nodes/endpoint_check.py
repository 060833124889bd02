"""Whether the other nodes find this node 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..core.errors import ExitCode, LaunchError
from ..core.placement import Placement
from ..schedulers.this_host import owns
from .joining import Join
from .rendezvous import join
from .secret import Trust
from .waiting import PATIENCE


def check_endpoint(
    placement: Placement, trust: Trust, own: Join, say: Callable[[str], None]
) -> None:
    """Looks for another node 0 if this one's address isn't its host's.

    It may still lead here, as a Kubernetes Service or a forwarded port does. So only another node 0
    that answers there refuses this one.

    Raises:
        LaunchError: another launcher is node 0.
    """
    where = f"{placement.address}:{placement.port}"
    if not placement.is_head or placement.may_join or owns(placement.address):
        return
    times = replace(placement.times, join=PATIENCE, last_call=0.0)
    try:
        join(replace(placement, times=times), trust, own, lambda _line: None)
    except LaunchError as error:
        if error.code == ExitCode.USAGE:
            raise
    say(
        f"{own.host} is node 0, but the others look for it at {where}, which isn't an address of "
        "this host: is its --node-rank right, and --master-addr (or --rdzv-endpoint)?"
    )
