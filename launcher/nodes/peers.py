"""The launchers of the other nodes, during an attempt: what they tell and are told."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field, replace

from msgspec import structs

from ..evidence.failure_record import FailureRecord
from ..machine import host
from .connection import Connection, broadcast
from .messages import Ended, Failing, Message, Order, Refusal, RunEnded, Stop

SHORT = 500
"""Letters of a message that are passed on of the failures after a node's first ones."""
IN_FULL = 2
"""Failures of a node that are passed on whole; a collective error has one on every rank."""


@dataclass(slots=True)
class Peers:
    """To node 0 all other nodes, to each of them node 0; nobody on a single node.

    Attributes:
        connections: by the node's rank.
        listener: where late nodes knock; node 0 alone has one.
        silence: seconds after which a node that should answer counts as lost.
        ended: how the other nodes' workers ended.
        failing: what nodes have told of failures while their workers were still being stopped.
        lost: nodes that can't be reached any more: when that was noticed, and a sentence about it.
        shifts: by how much a node's clock is behind this one's, in seconds; of several measurements
            the least, since each counts the time in which a message lay unread.
        deadline: when those that owe an answer count as lost: to node 0 the nodes that it has told
            to stop, to the others node 0, which they have told why to stop; None before.
        is_answered: node 0 has said that the workers are to be stopped.
    """

    connections: dict[int, Connection] = field(default_factory=dict)
    listener: socket.socket | None = None
    silence: float = 30.0
    ended: dict[int, Ended] = field(default_factory=dict)
    failing: dict[int, tuple[FailureRecord, ...]] = field(default_factory=dict)
    lost: dict[int, tuple[float, str]] = field(default_factory=dict)
    shifts: dict[int, float] = field(default_factory=dict)
    deadline: float | None = None
    is_answered: bool = False

    @property
    def is_head(self) -> bool:
        """Whether this is node 0, which waits for all others."""
        return 0 not in self.connections

    @property
    def has_trouble(self) -> bool:
        """Whether another node's part can't succeed any more."""
        done = {rank for rank, ended in self.ended.items() if ended.is_success}
        return bool(self.failing or self.lost.keys() - done or self.ended.keys() - done)

    def awaited(self) -> set[int]:
        """Nodes that this one waits for: whose workers may still run, or that owe an answer."""
        if not self.is_head and (self.deadline is None or self.is_answered):
            return set()
        return self.connections.keys() - self.ended.keys() - self.lost.keys()

    @property
    def interface(self) -> str | None:
        """This node's network interface towards the others, where gloo wouldn't find it.

        It listens at the address of the host's own name (`createDefaultDevice` in
        torch/csrc/distributed/c10d/ProcessGroupGloo.cpp); NCCL and HCCL look for interfaces.
        """
        for connection in self.connections.values():
            if connection.fault is None and host.is_known_as_loopback():
                address = str(connection.socket.getsockname()[0]).removeprefix("::ffff:")
                return None if address.startswith("127.") else host.interface_of(address)
        return None

    def send_orders(self, order: Order) -> None:
        """Tells every other node to start its workers."""
        for rank, connection in self.connections.items():
            connection.send(structs.replace(order, rank=rank))

    def send(self, message: Message) -> None:
        """Sends a message to everybody who is still there."""
        broadcast(
            (connection for rank, connection in self.connections.items() if rank not in self.lost),
            message,
        )

    def receive(self, rank: int) -> list[Message]:
        """What a node has told; times are in this host's clock, and the dead are noted."""
        connection = self.connections[rank]
        received: list[Message] = []
        came, connection.waiting = [*connection.waiting, *connection.receive()], []
        for message in came:
            if isinstance(message, Failing | Ended):
                shift = time.monotonic() - message.now - connection.delay()
                shift = self.shifts[rank] = min(shift, self.shifts.get(rank, shift))
                records = tuple(
                    replace(record, at=record.at + shift, host=connection.peer)
                    for record in message.records
                )
                message = structs.replace(message, records=records)
            if isinstance(message, Failing):
                self.failing[rank] = message.records
            elif isinstance(message, Ended):
                self._end(rank, message)
            elif isinstance(message, Refusal):
                self._lose(rank, message.problem)
            elif isinstance(message, Stop | RunEnded):
                self.is_answered = True
                connection.waiting += [message] if isinstance(message, RunEnded) else []
            received.append(message)
        if connection.fault is not None and rank not in self.lost:
            self._lose(rank, connection.fault)
        return received

    def survivors(self) -> Peers:
        """The nodes that are left for another attempt, numbered anew in their order."""
        connections = [
            connection
            for rank, connection in sorted(self.connections.items())
            if rank not in self.lost
        ]
        return Peers(dict(enumerate(connections, start=1)), self.listener, self.silence)

    def expire(self) -> None:
        """Counts as lost whoever hasn't answered in time."""
        for rank in self.awaited():
            self._lose(rank, "it doesn't answer any more")
            if not self.is_head:
                self.connections[rank].fault = "it doesn't answer any more"

    def _end(self, rank: int, ended: Ended) -> None:
        """Takes in how a node's workers ended; a failure that it has told of stays one."""
        has_failed = rank in self.failing
        records = ended.records or self.failing.get(rank, ())
        is_success = ended.is_success and not has_failed
        ended = structs.replace(ended, is_success=is_success, records=records)
        was_told = self.deadline is not None and not has_failed
        if ended.is_success or records or ended.signal or was_told:
            self.ended[rank] = ended
        else:
            self._lose(rank, "its workers have ended, and it doesn't say of what")

    def _lose(self, rank: int, why: str) -> None:
        text = f"node {rank} ({self.connections[rank].peer}) is lost: {why}"
        self.lost[rank] = (time.monotonic(), text)


def abbreviated(records: tuple[FailureRecord, ...]) -> tuple[FailureRecord, ...]:
    """A node's failures as they are passed on: the first whole, of the others what tells them."""
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
