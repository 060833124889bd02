"""Messages with which the launchers of a job join, or are refused."""

from __future__ import annotations

from typing import Annotated

from ..core.hardware import Hardware
from ..core.limits import (
    NODES,
    Limit,
    Line,
    Named,
    Paragraphs,
    Words,
    Workers,
    is_name,
    number,
    pattern,
)
from ..core.settings import Setting
from .sent import OUTSIDE, SMALL, Digest, FailureCode, NodeCount, NodeRank, OtherNode, RunId, Sent

Profiles = Annotated[
    tuple[str, ...], Limit("names of profiles", lambda names: all(map(is_name, names)))
]


class Join(Sent, frozen=True, tag=True):
    """A node joins.

    Attributes:
        job: the job's id, the same for all its launchers.
        rank: the node's rank; None if node 0 assigns it.
        nproc: the number of workers that it starts.
        hardware: its hardware, without the variables of its profile.
        versions: versions of safe-launch, Python and the frameworks, by name.
        script: digest of the script's text, or of the name of a module or a program.
        arguments: digest of the script's arguments.
        nnodes: the number of nodes as given to this node: `2` or `1:2`.
        never_changed: settings that stay as asked by this node's options, environment and files.
    """

    MOST = SMALL
    job: Line
    rank: NodeRank | None
    host: Named
    nproc: Workers
    hardware: Hardware
    versions: Words
    script: Digest
    arguments: Digest
    nnodes: Annotated[str, pattern(r"|\d{1,9}(:\d{1,9})?", "N or MIN:MAX")] = ""
    never_changed: Annotated[
        tuple[Setting, ...],
        Limit("settings, each once", lambda settings: len({*settings}) == len(settings)),
    ] = ()

    def contradiction(self) -> str:
        """A device's variables are its own node's."""
        has_variables = self.hardware.accelerator.environment
        return "variables don't cross a connection" if has_variables else ""


class Unable(Sent, frozen=True, tag=True):
    """A node of the job can't take part, and its launcher ends.

    Attributes:
        rank: the node's rank; None if node 0 would assign it.
        problem: why, as a sentence.
    """

    MOST = SMALL
    job: Line
    rank: NodeRank | None
    host: Named
    code: FailureCode
    problem: Paragraphs
    hint: Paragraphs = ""


class Accepted(Sent, frozen=True, tag=True):
    """The node is accepted: `here` nodes have joined so far, of `nodes` at most."""

    here: NodeCount
    nodes: NodeCount

    def contradiction(self) -> str:
        """No more are here than may come."""
        return "" if self.here <= self.nodes else "no more nodes are here than may join"


class RunStarted(Sent, frozen=True, tag=True):
    """All nodes have joined.

    Attributes:
        rank: rank of the node that receives this.
        devices: names of the profiles of all nodes' devices. If they differ, every worker needs the
            variables of all, which each node reads from its copy of the profiles.
    """

    run_id: RunId
    rank: OtherNode
    nodes: Annotated[int, number(2, NODES)]
    devices: Profiles = ()

    def contradiction(self) -> str:
        """The rank is one of the nodes'."""
        return "" if self.rank < self.nodes else OUTSIDE


class Refusal(Sent, frozen=True, tag=True):
    """The node can't take part: its exit code, the problem and a hint."""

    MOST = SMALL
    code: FailureCode
    problem: Paragraphs
    hint: Paragraphs = ""
