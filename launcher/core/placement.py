"""The position of this launcher among the launchers of its job."""

from __future__ import annotations

from dataclasses import dataclass

PORT = 29500
"""The default port of node 0, as in torchrun and deepspeed."""


@dataclass(frozen=True, slots=True)
class JoinTimes:
    """Timeouts of the rendezvous, in seconds.

    Attributes:
        join: until enough nodes have joined; torchrun's `join_timeout`.
        last_call: for further nodes, once the minimum has joined; its `last_call_timeout`.
        silence: after which an unreachable node counts as lost.
    """

    join: float = 600.0
    last_call: float = 30.0
    silence: float = 30.0


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes of a job, and the position of this node.

    A node is one launcher with its workers: a host, a pod, or, if a scheduler starts a task for
    every device, one task.

    Attributes:
        nodes: the number of nodes at most.
        least: the fewest nodes with which the training may continue.
        rank: this node's rank; None if node 0 numbers the nodes as they join.
        address: name or address of node 0, as the other nodes reach it; empty on a single node.
        port: the port of node 0's launcher.
        meeting: on a single node, the port of the workers' store; 0 for any.
        hosts: the nodes' names by rank, if the scheduler has them.
        job: an id that only the launchers of this job have; empty if none is given.
        local: index of this launcher among those on its host.
        beside: the number of launchers of the job on this host, this one included.
        shows_all_devices: whether each of these launchers sees all devices, not only its own.
        nproc: the scheduler's maximum of workers on this node; None if it gives none.
        nproc_source: where that number was read.
        sources: where each value was read, as rows for the plan.
        times: the timeouts of the rendezvous.
        may_join: it is node 0 only because of its host's address, so it joins another launcher on
            that host which has started first.
    """

    nodes: int = 1
    least: int = 1
    rank: int | None = 0
    address: str = ""
    port: int = PORT
    meeting: int = 0
    hosts: tuple[str, ...] = ()
    job: str = ""
    local: int = 0
    beside: int = 1
    shows_all_devices: bool = True
    nproc: int | None = None
    nproc_source: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    times: JoinTimes = JoinTimes()
    may_join: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether there is no other node."""
        return self.nodes == 1

    @property
    def range_text(self) -> str:
        """The number of nodes as torchrun's users write it: `2`, or `1:2`."""
        return str(self.nodes) if self.least == self.nodes else f"{self.least}:{self.nodes}"

    @property
    def is_head(self) -> bool:
        """Whether this is node 0, which decides for all."""
        return self.rank == 0

    @property
    def spans_hosts(self) -> bool:
        """Whether the nodes may be on several hosts."""
        is_loopback = self.address in ("localhost", "::1") or self.address.startswith("127.")
        return self.nodes > self.beside and not is_loopback
