"""Dispatch of an attempt's messages from workers and other nodes; questions go to node 0."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from ..checkpoints import save_folders
from ..checks.between_ranks import Compared
from ..checks.resumed import Noted
from ..evidence.worker_messages import (
    Answer,
    Ask,
    Exiting,
    Failure,
    FailureBegun,
    Finalizing,
    Finished,
    Found,
    Imports,
    ModelShape,
    Observed,
    Reexecution,
    Remark,
    SaveLocation,
    Skipped,
    WentOn,
    encoded_answer,
)
from ..evidence.worker_receiver import Envelope
from ..nodes import messages
from ..nodes.liveness import Liveness
from ..nodes.messages import NodeAnswer, NodeAsk, NodeWentOn
from ..nodes.peers import Peers
from ..progress.board import RankProgress
from ..system import terminal
from .check_watch import CheckWatch
from .hang_watch import HangWatch
from .node_workers import NodeWorkers
from .watch import Judge, Watch


@dataclass(slots=True)
class Inbox:
    """Dispatches each message to its handler; keeps an order to stop for the supervisor.

    Attributes:
        ordered: the signal that stopped another node's launcher; None if there was none.
        is_stop_ordered: another node's launcher has ordered the workers to be stopped.
        is_hastened: it has got the signal again, and that isn't handled yet.
        remarks: sentences that were already printed.
    """

    workers: NodeWorkers
    peers: Peers
    questions: Questions
    hangs: HangWatch
    liveness: Liveness
    watch: Watch
    checks: CheckWatch
    ordered: int | None = None
    is_stop_ordered: bool = False
    is_hastened: bool = False
    remarks: set[str] = field(default_factory=set)

    def hear_worker(self, envelope: Envelope, connection: socket.socket) -> None:
        """Acts on a worker's message."""
        rank, workers = envelope.rank, self.workers
        match envelope.message:
            case FailureBegun(record=record):
                workers.failing[rank] = record
            case Failure(record=record):
                workers.records[rank] = record
            case Finished():
                workers.finished.add(rank)
            case Exiting():
                workers.exiting.add(rank)
            case Finalizing():
                workers.finalizing.add(rank)
            case Observed(observed=observed, step=step) if not step:
                # A later observation isn't worth losing the steps already done.
                workers.observed.update(observed)
            case ModelShape(shape=shape):
                workers.model = workers.model or shape
            case SaveLocation(saves=saves):
                workers.saves[rank] = saves
                self._remark(save_folders.warning(workers.saves, workers.pids.keys()))
            case Found(finding=finding):
                self.checks.add(rank, finding)
            case Compared() as compared:
                self.checks.compare(rank, compared)
            case Skipped(check=check, why=why):
                self.checks.skip(check, why)
            case Noted() as noted:
                self.checks.save(noted)
            case Imports(report=report):
                self.watch.imported(report)
            case Remark(sentence=sentence):
                self._remark(sentence)
            case Reexecution(variable=name):
                because = f"the script sets {name} after a preloaded module had read it"
                terminal.detail(f"rank {rank} was re-executed: {because}")
            case Ask() as question:
                self.questions.ask(rank, question, connection)
            case WentOn(key=key):
                self.questions.note_unanswered(rank, key)

    def hear_node(self, node: int) -> None:
        """Acts on what another node's launcher has sent."""
        for message in self.peers.receive(node):
            self.liveness.hear(node)
            match message:
                case messages.Ping():
                    self.liveness.answer(node)
                case messages.Pong(progress=progress):
                    self.liveness.answered(node, progress)
                case messages.Standings(standings=standings):
                    self.hangs.hear(node, standings)
                case messages.Ask():
                    self.hangs.ask_for_node()
                case messages.NodeAsk(rank=rank, question=question):
                    self.questions.ask_for(node, rank, question)
                case messages.NodeAnswer(rank=rank, answer=answer):
                    self.questions.answered(rank, answer)
                case messages.NodeWentOn(rank=rank, key=key):
                    self.questions.note_unanswered(rank, key)
                case messages.NodeFound(rank=rank, finding=finding):
                    self.checks.add(rank, finding)
                case messages.NodeCompared(rank=rank, compared=compared):
                    self.checks.compare(rank, compared)
                case messages.NodeObserved(observed=observed, model=model):
                    self.workers.observed.update(observed)
                    self.workers.model = self.workers.model or model
                case (
                    messages.Stop(signal=number, again=again)
                    | messages.Signalled(signal=number, again=again)
                ):
                    self.ordered = number or self.ordered
                    self.is_stop_ordered = True
                    self.is_hastened |= again
                case messages.RunEnded():
                    self.is_stop_ordered = True

    def _remark(self, sentence: str | None) -> None:
        """Prints a sentence once, if there is one."""
        if sentence is not None and sentence not in self.remarks:
            self.remarks.add(sentence)
            self.watch.notice(sentence)


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
