"""Carries what the workers ask and observe to node 0, and its answers back to the workers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from ..evidence.worker_messages import Answer, Ask, WentOn, encoded_answer
from ..evidence.worker_receiver import Envelope
from ..nodes.messages import Message, NodeAnswer, NodeAsk, NodeObserved, NodeWentOn
from ..nodes.peers import Peers
from ..progress.board import RankProgress
from .node_workers import NodeWorkers
from .watch import Judge


@dataclass(slots=True)
class Questions:
    """The questions of one attempt; on node 0 those of all nodes.

    Attributes:
        judge: who answers; None on any node but node 0.
        peers: the other nodes.
        workers: this node's workers, with what is observed.
        waiting: the connections of this node's workers that wait for node 0, by rank and key.
    """

    judge: Judge | None
    peers: Peers
    workers: NodeWorkers
    waiting: dict[tuple[int, str], socket.socket] = field(default_factory=dict)

    def hear(self, envelope: Envelope, connection: socket.socket) -> None:
        """Takes a worker's question, or its word that it went on without an answer."""
        rank = envelope.rank
        match envelope.message:
            case Ask() as question if self.judge is not None:
                _reply(connection, self._answer(rank, question))
            case Ask() as question:
                self.waiting[rank, question.key] = connection
                self.peers.send(NodeAsk(rank, question))
            case WentOn(key=key) if self.judge is not None:
                self.judge.went_on(rank, key)
            case WentOn(key=key):
                self.peers.send(NodeWentOn(rank, key))

    def hear_node(self, node: int, message: Message) -> None:
        """Takes what another node's workers ask or observe, or node 0's answer to one of this."""
        match message:
            case NodeAsk(rank=rank, question=question) if self.judge is not None:
                answer = self._answer(rank, question)
                if answer is not None:
                    self.peers.connections[node].send(NodeAnswer(rank, answer))
            case NodeWentOn(rank=rank, key=key) if self.judge is not None:
                self.judge.went_on(rank, key)
            case NodeObserved(observed=observed, model=model):
                self.workers.observed.update(observed)
                self.workers.model = self.workers.model or model
            case NodeAnswer(rank=rank, answer=answer):
                connection = self.waiting.pop((rank, answer.key), None)
                if connection is not None:
                    _reply(connection, answer)

    def look(self, rows: Callable[[], Sequence[RankProgress]]) -> None:
        """Has the judge look at how far all ranks have come, where it has something to look for.

        Args:
            rows: reads how far this node's ranks have come.
        """
        if self.judge is not None and self.judge.pause() is not None:
            self.judge.look(chain(rows(), *self.peers.progress.values()))

    def pause(self) -> float | None:
        """Seconds until the judge is to look again; None where there is nothing to look for."""
        return None if self.judge is None else self.judge.pause()

    def _answer(self, rank: int, question: Ask) -> Answer | None:
        assert self.judge is not None, "asked on node 0 alone"
        return self.judge.answer(rank, question, self.workers.observed, self.workers.model)


def _reply(connection: socket.socket, answer: Answer | None) -> None:
    """Sends a worker its answer, if there is one; a worker that is gone needs none."""
    if answer is not None:
        with suppress(OSError):
            connection.sendall(encoded_answer(answer))
