"""Watches the workers of one attempt until all have ended, and stops them if needed."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Mapping, Sequence
from functools import partial

from ..checkpoints import save_folders
from ..core.errors import LaunchError
from ..evidence.worker_receiver import Receiver
from ..hangs.standing import Standing
from ..nodes.admission import late_ones_refused
from ..nodes.liveness import Liveness
from ..nodes.messages import Ended, Failing, NodeObserved, Signalled, Stop
from ..nodes.peers import AttemptEnd, Peers, abbreviated
from ..system import orphans
from ..system.event_loop import EventLoop
from ..system.signals import REPORT, STOPS, SignalWakeup
from . import stops
from .check_watch import CheckWatch
from .environment import NodeContext
from .exit_watch import ExitWatch
from .hang_watch import HangWatch
from .inbox import Inbox, Questions
from .node_workers import NodeWorkers
from .output import Output
from .progress_watch import ProgressWatch
from .stops import AttemptState, Progress, StopSignals
from .watch import Watch

SAME = 0.5
"""Seconds within which a repeated SIGTERM is the same stop: timeout(1) signals the launcher and its
process group. Ctrl-C is a person's."""


class Supervisor:
    """Watches this node's workers and the other nodes; handles each event as soon as it comes."""

    def __init__(
        self,
        pids: Mapping[int, int],
        receiver: Receiver,
        wakeup: SignalWakeup,
        node: NodeContext,
        watch: Watch,
        peers: Peers,
        hangs: HangWatch,
        board_watch: ProgressWatch,
        checks: CheckWatch,
    ) -> None:
        self.workers = NodeWorkers(pids, set(pids))
        self.stops = StopSignals(pids)
        self.progress = Progress()
        self._receiver = receiver
        self._wakeup = wakeup
        self._options = options = node.request.worker_options
        self._exits = ExitWatch(pids, options.hang_times.report, watch.notice)
        self.workers.hung = self._exits.hung
        self._questions = Questions(watch.judge, peers, self.workers)
        self._times = options.stop_times
        self._watch = watch
        self._server = node.server
        self._peers = peers
        self._hangs = hangs
        self._board_watch = board_watch
        self._checks = checks
        self._liveness = Liveness(peers, hangs.look, watch.notice)
        self._inbox = Inbox(
            self.workers, peers, self._questions, hangs, self._liveness, watch, checks
        )
        self._loop = EventLoop()
        self._fault: LaunchError | None = None
        self._stopped_at = -math.inf  # by a signal to this launcher
        self._reported = (0, True)

    def watch_all(self) -> None:
        """Returns when every worker has ended and no other node's answer is awaited."""
        with self._loop, late_ones_refused(self._peers, self._loop):
            read_rest = self._receiver.listen(self._loop, self._inbox.hear_worker)
            self._register()
            self._answer_signals()  # that came while the workers were being started
            self._decide()
            while self.workers.alive or self._peers.awaited():
                self._loop.wait(self._pause())
                self._liveness.check()
                has_trouble = bool(self.workers.failed()) or self._peers.has_trouble
                is_stopping = self.progress.is_stopping or has_trouble
                self._hangs.check(self.workers.alive, is_stopping=is_stopping)
                self._board_watch.check()
                self._checks.check()
                self._questions.look(self._hangs.look)
                self._end_hung()
                self._decide()
                self.stops.send_due(self.workers.alive, self._watch.notice)
                orphans.reap({*self.workers.pids.values(), *self._server.pids})
                if self._peers.is_overdue():
                    self._peers.expire()
                    self._close_lost()
            read_rest()
            self._checks.check(is_end=True)

    def kill_orphans(self) -> int:
        """Kills the processes that stopped workers have left behind; returns their number."""
        if not (self.progress.is_stopping or self.workers.alive):
            return 0
        return orphans.kill(self._server.mark, self._server.pids)

    @property
    def fault(self) -> LaunchError | None:
        """The launcher's own error, if the workers were stopped for it."""
        return self._fault if self.progress.state is AttemptState.BROKEN else None

    def end(self, node: int, output: Output, dumped: Sequence[Standing] = ()) -> AttemptEnd:
        """The end of the attempt on all nodes known to this node."""
        watches = (*self._hangs.records(), *self._checks.records())
        failures = (*watches, *self.workers.failures(self.stops.sent, output))
        is_success = self.progress.has_finished
        ended = Ended(
            is_success=is_success,
            records=() if is_success else failures,
            remarks=self.workers.remarks() if is_success else (),
            signal=next(iter(self._stops_received()), self._inbox.ordered),
            now=time.monotonic(),
            standings=() if is_success else tuple(dumped),
        )
        return AttemptEnd(
            ended={node: ended, **self._peers.ended},
            lost=self._peers.lost,
            failing=self._peers.failing,
            observed=self.workers.observed,
            model=self.workers.model,
            is_superseded=self.progress.state is AttemptState.SUPERSEDED,
            saves=save_folders.places(self.workers.saves),
            rows=tuple(self._hangs.look()),
        )

    def _register(self) -> None:
        """Registers a handler for every source of events."""
        self._loop.on_readable(self._wakeup, self._answer_signals)
        self._loop.on_readable(self._hangs.asker, self._hangs.answered)
        for rank, pid in self.workers.pids.items():
            self._loop.on_end(pid, partial(self._note_exit, rank, pid))
        if self._server.store_host is not None:
            self._loop.on_end(self._server.store_host, self._note_end_of_store)
        for node, link in self._peers.connections.items():
            self._loop.on_readable(link, partial(self._receive_from, node))
        for node in self._peers.connections:
            self._receive_from(node)  # messages that came with the order to start, e.g. a stop

    def _pause(self) -> float | None:
        """Seconds until something is due; None if nothing is."""
        pauses = (
            self.stops.pause(),
            orphans.reaping_pause(),
            self._liveness.pause(),
            self._hangs.pause(),
            self._board_watch.pause(),
            self._checks.pause(),
            self._questions.pause(),
            self._exits.pause(self.workers.leaving(self._hangs.at_end)),
            self._peers.pause(),
        )
        return min((pause for pause in pauses if pause is not None), default=None)

    def _note_exit(self, rank: int, pid: int) -> None:
        self.workers.note_exit(rank, self._server.exit_code(pid))

    def _note_end_of_store(self) -> None:
        self._fault = self._server.store_failure()

    def _receive_from(self, node: int) -> None:
        """Reads what another node has sent."""
        self._inbox.hear_node(node)
        self._close_lost()

    def _close_lost(self) -> None:
        """Closes the connections to lost nodes, so that none of them waits for this one."""
        for connection in map(self._peers.connections.__getitem__, self._peers.lost):
            if connection.fileno() >= 0:
                self._loop.forget(connection)
                connection.close()

    def _answer_signals(self) -> None:
        """Acts on signals to the launcher: a repeated stop brings the next, harder step."""
        for number in map(signal.Signals, self._wakeup.taken()):
            message = Stop if self._peers.is_head else Signalled
            if number in self._options.forwarded:
                self.stops.forward(number, self.workers.alive, self._watch.notice)
            elif number == REPORT:
                self._hangs.ask_now()
            elif self.progress.state is not AttemptState.INTERRUPTED:
                self._watch.notice(f"{number.name}: stopping the workers")
                self._interrupt(number)
                self._send_stop(message(number))
                self._stopped_at = time.monotonic()
            elif len(self._stops_received()) > 1 and (
                number == signal.SIGINT or time.monotonic() - self._stopped_at > SAME
            ):
                self.stops.hasten()
                self._peers.send(message(number, again=True))

    def _stops_received(self) -> list[int]:
        """The signals that ordered this launcher to stop, in order."""
        return [number for number in self._wakeup.arrived if number in STOPS]

    def _decide(self) -> None:
        """Stops the workers if there is a reason to, and informs the other nodes."""
        workers, failed = self.workers, self.workers.failed()
        leaving = workers.alive & workers.failing.keys() - self.stops.planned
        self.stops.schedule(leaving, stops.after_failure(self._times))
        if not workers.alive and self.progress.state is AttemptState.RUNNING and not failed:
            self.progress.enter(AttemptState.FINISHED)
        self._obey_other_nodes()
        if not self.progress.is_stopping:
            self._stop_for_a_reason(has_failed=bool(failed))
        seen = (len(workers.observed), workers.model is None)
        if not self._peers.is_head and seen != self._reported:
            self._reported = seen
            self._peers.send(NodeObserved(workers.observed, workers.model))

    def _end_hung(self) -> None:
        """Ends ranks that hang as they end, which is no failure: their training is done."""
        if not self.progress.is_stopping:
            hung = self._exits.check(
                self.workers.leaving(self._hangs.at_end), self.workers.finalizing
            )
            self.workers.finished |= hung
            self.stops.schedule(hung, stops.HUNG_AT_EXIT)

    def _obey_other_nodes(self) -> None:
        """Interrupts the workers if another node's launcher was stopped by a signal."""
        if self._inbox.ordered is not None and self.progress.state is not AttemptState.INTERRUPTED:
            number = signal.Signals(self._inbox.ordered)
            self._interrupt(number)
            self._watch.notice(f"{number.name} on another node: stopping the workers")
            if self._peers.is_head:
                self._send_stop(Stop(number))
        if self._inbox.is_hastened and self.progress.state is AttemptState.INTERRUPTED:
            self._inbox.is_hastened = False
            if len(self._stops_received()) < 2:  # else this node has already hastened
                self.stops.hasten()
            if self._peers.is_head:
                self._peers.send(Stop(self._inbox.ordered, again=True))

    def _stop_for_a_reason(self, *, has_failed: bool) -> None:
        """Stops the workers if something has failed, or the plan may not continue."""
        workers, peers, judge = self.workers, self._peers, self._watch.judge
        has_proof = self._hangs.proof or self._checks.ending
        if self._fault is not None and (workers.alive or peers.awaited()):
            self.progress.enter(AttemptState.BROKEN)
            self._stop_others()
            self._send_stop(Stop())
        elif has_failed or self._inbox.is_stop_ordered or peers.has_trouble or has_proof:
            self.progress.enter(AttemptState.FAILED)
            self._stop_others()
            if peers.is_head:
                self._send_stop(Stop())
            elif has_failed:
                records = sorted(workers.records.values(), key=lambda record: record.at)
                self._send_stop(Failing(abbreviated(tuple(records)), time.monotonic()))
        elif judge and not judge.allows(workers.observed, workers.model):
            self.progress.enter(AttemptState.SUPERSEDED)
            self.stops.schedule(workers.alive, stops.superseded(self._times))
            self._send_stop(Stop())

    def _stop_others(self) -> None:
        """Stops the ranks that haven't failed themselves."""
        ranks = self.workers.alive - self.workers.failing.keys()
        self.stops.schedule(ranks, stops.after_failure_elsewhere(self._times))

    def _interrupt(self, number: signal.Signals) -> None:
        """Begins to stop the workers as a signal to a launcher requires."""
        self.progress.enter(AttemptState.INTERRUPTED)
        self.stops.deadlines.clear()
        self.stops.schedule(self.workers.alive, stops.interrupted(number, self._times))

    def _send_stop(self, message: Stop | Failing | Signalled) -> None:
        """Tells the other nodes to stop, and sets how long they may take to answer."""
        self._peers.send(message)
        patience = stops.patience(self._times, self._peers.silence)
        self._peers.deadline = time.monotonic() + patience
