"""Carries what the workers ask and observe to node 0, and its answers back to the workers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from ..evidence.worker_messages import Answer, Ask, encoded_answer
from ..nodes.messages import NodeAnswer, NodeAsk, NodeWentOn
from ..nodes.peers import Peers
from ..progress.board import RankProgress
from .node_workers import NodeWorkers
from .watch import Judge


@dataclass(slots=True)
class Questions:
    """The questions of one attempt; on node 0 those of all nodes.

    Attributes:
        judge: who answers; None on any node but node 0.
        waiting: the connections of this node's workers that wait for node 0, by rank and key.
    """

    judge: Judge | None
    peers: Peers
    workers: NodeWorkers
    waiting: dict[tuple[int, str], socket.socket] = field(default_factory=dict)

    def ask(self, rank: int, question: Ask, connection: socket.socket) -> None:
        """Answers a worker of this node, or passes its question on to node 0."""
        if self.judge is not None:
            _reply(connection, self._answer(rank, question))
        else:
            self.waiting[rank, question.key] = connection
            self.peers.send(NodeAsk(rank, question))

    def ask_for(self, node: int, rank: int, question: Ask) -> None:
        """Answers a worker of another node, if this is node 0."""
        answer = None if self.judge is None else self._answer(rank, question)
        if answer is not None:
            self.peers.connections[node].send(NodeAnswer(rank, answer))

    def answered(self, rank: int, answer: Answer) -> None:
        """Passes node 0's answer on to the worker of this node that waits for it."""
        connection = self.waiting.pop((rank, answer.key), None)
        if connection is not None:
            _reply(connection, answer)

    def note_unanswered(self, rank: int, key: str) -> None:
        """Notes that a worker continued without an answer, or informs node 0."""
        if self.judge is not None:
            self.judge.note_unanswered(rank, key)
        else:
            self.peers.send(NodeWentOn(rank, key))

    def look(self, rows: Callable[[], Sequence[RankProgress]]) -> None:
        """Shows the judge the progress of all ranks, if it needs that."""
        if self.judge is not None and self.judge.pause() is not None:
            self.judge.look(chain(rows(), *self.peers.progress.values()))

    def pause(self) -> float | None:
        """Seconds until the judge is to look again; None if there is nothing to look for."""
        return None if self.judge is None else self.judge.pause()

    def _answer(self, rank: int, question: Ask) -> Answer | None:
        assert self.judge is not None, "asked on node 0 alone"
        return self.judge.answer(rank, question, self.workers.observed, self.workers.model)


def _reply(connection: socket.socket, answer: Answer | None) -> None:
    """Sends a worker its answer, if there is one; a worker that is gone needs none."""
    if answer is not None:
        with suppress(OSError):
            connection.sendall(encoded_answer(answer))
