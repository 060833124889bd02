"""The launchers of the other nodes during an attempt, their messages, and how the attempt ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from msgspec import structs

from ..checkpoints.checkpoint import Saves
from ..core.settings import Value
from ..evidence.failure_record import FailureRecord
from ..machine import host
from ..progress.board import RankProgress
from .connection import Connection, broadcast
from .joining import Refusal
from .listener import Listener
from .messages import Ended, Failing, Message, Order, RunEnded, Standings, Stop

SHORT = 500
"""Characters of a message that are passed on, for failures after a node's first ones."""
IN_FULL = 2
"""Failures of a node that are passed on in full; a collective error fails every rank."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of an attempt: on this node, or for node 0 on all nodes.

    Attributes:
        ended: how each node's workers ended, by the node's rank.
        lost: nodes that can't be reached any more: when that was noticed, in seconds of this host's
            monotonic clock, and a sentence that names the node and the reason.
        failing: failure records that nodes sent before their workers had ended.
        observed: settings in force and facts, as observed by the workers.
        model: the model as the first worker described it.
        is_superseded: the attempt was stopped because of the workers' observations.
        saves: where this node's Trainers save, the first rank's first (`places`).
        rows: how far this node's ranks had come.
        span: its start and end on this node, in seconds of this host's monotonic clock.
    """

    ended: Mapping[int, Ended]
    lost: Mapping[int, tuple[float, str]] = field(default_factory=lambda: MappingProxyType({}))
    failing: Mapping[int, tuple[FailureRecord, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    observed: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    model: dict[str, Any] | None = None
    is_superseded: bool = False
    saves: tuple[Saves, ...] = ()
    rows: tuple[RankProgress, ...] = ()
    span: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class Peers:
    """For node 0 all other nodes, for each of them node 0; empty on a single node.

    Attributes:
        connections: by the node's rank.
        listener: the job's port, for nodes that come too late; on node 0 alone.
        job: the job's id, which distinguishes its nodes from another job's.
        silence: seconds after which a node that should answer counts as lost.
        ended: how the other nodes' workers ended.
        failing: failure records that nodes sent while their workers were still being stopped.
        lost: nodes that can't be reached any more: when that was noticed, and a sentence about it.
        shifts: by how many seconds a node's clock is behind this node's; the least of several
            measurements, since each includes the time in which a message lay unread.
        deadline: when nodes that owe an answer count as lost; None before they owe it. Other nodes
            owe node 0 an answer to a stop; node 0 owes them an answer to a reported failure.
        is_answered: node 0 has ordered the workers to be stopped.
        progress: that of the other nodes' ranks, by their last sign of life.
        mute: nodes whose launchers give no sign of life, though the connection is open.
        spans: the ranks of each node, on node 0: a node may only report its own.
    """

    connections: dict[int, Connection] = field(default_factory=dict)
    listener: Listener | None = None
    job: str = ""
    silence: float = 30.0
    ended: dict[int, Ended] = field(default_factory=dict)
    failing: dict[int, tuple[FailureRecord, ...]] = field(default_factory=dict)
    lost: dict[int, tuple[float, str]] = field(default_factory=dict)
    shifts: dict[int, float] = field(default_factory=dict)
    deadline: float | None = None
    is_answered: bool = False
    progress: dict[int, tuple[RankProgress, ...]] = field(default_factory=dict)
    mute: set[int] = field(default_factory=set)
    spans: tuple[range, ...] = ()

    @property
    def is_head(self) -> bool:
        """Whether this is node 0, which waits for all others."""
        return 0 not in self.connections

    @property
    def has_trouble(self) -> bool:
        """Whether another node has failed or is lost."""
        done = {rank for rank, ended in self.ended.items() if ended.is_success}
        return bool(self.failing or self.lost.keys() - done or self.ended.keys() - done)

    def awaited(self) -> set[int]:
        """Nodes that this node waits for: their workers may still run, or they owe an answer."""
        if not self.is_head and (self.deadline is None or self.is_answered):
            return set()
        return self.connections.keys() - self.ended.keys() - self.lost.keys()

    @property
    def interface(self) -> str | None:
        """This node's network interface towards the other nodes, if gloo wouldn't find it.

        Gloo listens at the address of the host's own name (`createDefaultDevice` in
        torch/csrc/distributed/c10d/ProcessGroupGloo.cpp); NCCL and HCCL look for interfaces.
        """
        for connection in self.connections.values():
            if connection.fault is None and host.is_known_as_loopback():
                address = str(connection.socket.getsockname()[0]).removeprefix("::ffff:")
                return None if address.startswith("127.") else host.interface_of(address)
        return None

    def send_orders(self, order: Order) -> None:
        """Orders every other node to start its workers."""
        self.spans = order.spans
        for rank, connection in self.connections.items():
            connection.send(structs.replace(order, rank=rank))

    def send(self, message: Message) -> None:
        """Sends a message to every node that isn't lost."""
        broadcast(
            (connection for rank, connection in self.connections.items() if rank not in self.lost),
            message,
        )

    def receive(self, rank: int) -> list[Message]:
        """A node's messages, with times in this host's clock; notes its end or loss."""
        connection = self.connections[rank]
        received: list[Message] = []
        arrived, connection.waiting = [*connection.waiting, *connection.receive()], []
        for message in arrived:
            if self.spans and (foreign := message.reported.difference(self.spans[rank])):
                connection.refuse(f"reported rank {min(foreign, key=str)}, which isn't its own")
                break
            match message := self._of_this_host(rank, message):
                case Failing(records=records):
                    self.failing[rank] = records
                case Ended():
                    self._end(rank, message)
                case Refusal(problem=problem):
                    self._mark_lost(rank, problem)
                case Stop():
                    self.is_answered = True
                case RunEnded():
                    self.is_answered = True
                    connection.waiting.append(message)
            received.append(message)
        if connection.fault is not None and rank not in self.lost:
            self._mark_lost(rank, connection.fault)
        return received

    def _of_this_host(self, rank: int, message: Message) -> Message:
        """A node's message with times in this host's clock, and with the node's name."""
        connection = self.connections[rank]
        if isinstance(message, Ended | Standings):
            hosted = (replace(standing, host=connection.peer) for standing in message.standings)
            message = structs.replace(message, standings=tuple(hosted))
        if not isinstance(message, Failing | Ended):
            return message
        shift = time.monotonic() - message.now - connection.delay()
        shift = self.shifts[rank] = min(shift, self.shifts.get(rank, shift))
        records = tuple(
            replace(record, at=record.at + shift, host=connection.peer)
            for record in message.records
        )
        return structs.replace(message, records=records)

    def survivors(self) -> Peers:
        """The nodes that are left for another attempt, renumbered in order."""
        connections = [
            connection
            for rank, connection in sorted(self.connections.items())
            if rank not in self.lost
        ]
        links = dict(enumerate(connections, start=1))
        return Peers(links, self.listener, self.job, self.silence)

    def pause(self) -> float | None:
        """Seconds until nodes that owe an answer count as lost; None before they owe it."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def is_overdue(self) -> bool:
        """Whether nodes that owe an answer have exceeded their time, or give no sign of life."""
        if self.deadline is None:
            return False
        awaited = self.awaited()
        return time.monotonic() >= self.deadline or (bool(awaited) and awaited <= self.mute)

    def expire(self) -> None:
        """Marks nodes that haven't answered in time as lost."""
        for rank in self.awaited():
            self._mark_lost(rank, "it no longer answers")
            if not self.is_head:
                self.connections[rank].fault = "it no longer answers"

    def _end(self, rank: int, ended: Ended) -> None:
        """Notes how a node's workers ended; an earlier reported failure stays a failure."""
        has_failed = rank in self.failing
        records = ended.records or self.failing.get(rank, ())
        is_success = ended.is_success and not has_failed
        ended = structs.replace(ended, is_success=is_success, records=records)
        was_ordered = self.deadline is not None and not has_failed
        if ended.is_success or records or ended.signal or was_ordered:
            self.ended[rank] = ended
        else:
            self._mark_lost(rank, "its workers have ended, but it doesn't say why")

    def _mark_lost(self, rank: int, why: str) -> None:
        text = f"node {rank} ({self.connections[rank].peer}) is lost: {why}"
        self.lost[rank] = (time.monotonic(), text)


def abbreviated(records: tuple[FailureRecord, ...]) -> tuple[FailureRecord, ...]:
    """A node's failures as they are passed on: the first in full, the others abbreviated."""
    short = (
        replace(
            record,
            message=record.message[:SHORT],
            frames=record.frames[-1:],
            chain=record.chain[:1],
            traceback="",
            log_tail=record.log_tail[-20:],
        )
        for record in records[IN_FULL:]
    )
    return (*records[:IN_FULL], *short)
