"""Where this launcher stands among the launchers of its job."""

from __future__ import annotations

from dataclasses import dataclass

from .row import Row

PORT = 29500
"""The port of node 0 if nobody names one: torchrun's and deepspeed's."""


@dataclass(frozen=True, slots=True)
class JoinTimes:
    """How long the nodes of a job wait for each other, in seconds.

    Attributes:
        join: until enough nodes have come; torchrun's `join_timeout`.
        last_call: for further nodes, once the least number has come; its `last_call_timeout`.
        silence: after which a node that can't be reached any more counts as lost.
    """

    join: float = 600.0
    last_call: float = 30.0
    silence: float = 30.0


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes of a job, and which of them this is.

    A node is one launcher with its workers: a host, a pod, or, where a scheduler starts a task for
    every device, one task.

    Attributes:
        nodes: how many there are to be, at most.
        least: with how many the training may continue.
        rank: this node's rank; None where node 0 numbers the nodes as they join.
        address: name or address of node 0, as the other nodes reach it; empty on a single node.
        port: where node 0's launcher listens.
        meeting: on a single node, the port that the workers are to meet at; 0 for any.
        job: what the launchers of one job have in common and no others; empty where nobody says.
        local: index of this launcher among those on its host.
        beside: launchers of the job on this host, this one included.
        shows_all_devices: whether each of these sees the devices of all, not its own alone.
        nproc: workers of this node as the scheduler says, at most; None where it doesn't.
        nproc_source: where that number was read.
        sources: what was read where, as rows of a label and a text, for the plan.
        times: how long to wait.
    """

    nodes: int = 1
    least: int = 1
    rank: int | None = 0
    address: str = ""
    port: int = PORT
    meeting: int = 0
    job: str = ""
    local: int = 0
    beside: int = 1
    shows_all_devices: bool = True
    nproc: int | None = None
    nproc_source: str = ""
    sources: tuple[Row, ...] = ()
    times: JoinTimes = JoinTimes()

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
