"""Detects that no rank moves, asks all of them where they stand, and reports the conclusion."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..core.request import HangTimes
from ..evidence.failure_record import FailureRecord
from ..hangs.attribution import attributed
from ..hangs.places import hung_at_end
from ..hangs.report import HangKind, HangReport, failure_records
from ..hangs.standing import Standing
from ..nodes.messages import Ask, Standings
from ..nodes.peers import Peers
from ..progress.board import Phase, RankProgress
from .exit_watch import look_interval

FACTOR = 5.0
"""Quiet is unusual from this many times the longest quiet so far in the same phase."""
MOST = 10.0
"""Patience at most, in units of `HangTimes.report`: asking costs little, and a busy rank isn't
taken for a hanging one."""
ANSWER = 10.0
"""Seconds for the other nodes to answer: asking takes about 5 s."""


class Asker:
    """Asks in a thread; its descriptor is readable once there is an answer."""

    def __init__(self, ask: Callable[[Sequence[RankProgress]], tuple[Standing, ...]]) -> None:
        self._ask = ask
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None
        self._answer: tuple[Standing, ...] = ()

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._event

    def begin(self, rows: Sequence[RankProgress]) -> None:
        """Begins to ask, unless it already does."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(tuple(rows),), name="asker", daemon=True
            )
            self._thread.start()

    def take(self) -> tuple[Standing, ...]:
        """The answer, once the descriptor is readable."""
        os.eventfd_read(self._event)
        self._thread = None
        return self._answer

    def close(self) -> None:
        """Closes the descriptor, unless an answer is still to be written to it."""
        if self._thread is None or not self._thread.is_alive():
            os.close(self._event)

    def _run(self, rows: tuple[RankProgress, ...]) -> None:
        self._answer = self._ask(rows)
        os.eventfd_write(self._event, 1)


@dataclass(slots=True)
class HangWatch:
    """The watch over the ranks of an attempt.

    Node 0 looks at its own ranks: in a distributed training all ranks stand still with any of
    them. Once nothing has moved there for too long, it asks the ranks of all nodes.

    Attributes:
        ranks: the ranks of each node.
        look: reads the progress of this node's ranks.
        asker: asks this node's ranks; readable once there is an answer.
        show: called with a report for the user.
        at_end: ranks that hang and have only to exit; none if other nodes take part.
        proof: the report that ends the run; None while it may continue.
    """

    times: HangTimes
    ranks: Sequence[range]
    look: Callable[[], Sequence[RankProgress]]
    asker: Asker
    peers: Peers
    show: Callable[[HangReport], None]
    notice: Callable[[str], None]
    at_end: frozenset[int] = frozenset()
    proof: HangReport | None = None
    _proven_at: float = 0.0
    _due: float = 0.0  # the next look
    _again: float = 0.0  # nobody is asked before
    _limit: float = 0.0
    _deadline: float | None = None  # for the answers; None while nobody is asked
    _answers: dict[int, Sequence[Standing]] = field(default_factory=dict)
    _is_wanted: bool = False
    _is_wanted_by_head: bool = False
    _is_over: bool = False
    _last: HangReport | None = None  # of this standstill
    _shown: HangReport | None = None  # the last of this standstill that the user has read

    def __post_init__(self) -> None:
        self._limit = self.times.report
        self._due = time.monotonic() + self._interval

    def pause(self) -> float | None:
        """Seconds until something is due; None if nothing is."""
        if self._deadline is not None:
            return max(0.0, self._deadline - time.monotonic())
        return max(0.0, self._due - time.monotonic()) if self._is_watching else None

    def check(self, alive: set[int], *, is_stopping: bool) -> None:
        """Looks at the ranks, if it is due; with `is_stopping`, only a person needs reports."""
        self._is_over = is_stopping
        now = time.monotonic()
        if self._deadline is not None:
            if now >= self._deadline or self._answers.keys() >= self._awaited():
                self._judge()
        elif self._is_watching and now >= self._due:
            self._due = now + self._interval
            rows = [row for row in self.look() if row.pid]
            quiet = quiet_of(rows, alive)
            self._limit = limit_of(rows, self.times)
            if self._last is not None and quiet < self._interval:
                self._note_movement()
            elif quiet >= self._limit and now >= self._again:
                self._begin()

    def ask_now(self) -> None:
        """Asks on a user's behalf, through node 0."""
        if not self.peers.is_head:
            self.peers.send(Ask())
            return
        self._is_wanted = True
        if self._deadline is None:
            self._begin()

    def answered(self) -> None:
        """Takes the answer of this node's own ranks."""
        standings = self.asker.take()
        if self._is_wanted_by_head:
            self._is_wanted_by_head = False
            self.peers.send(Standings(standings))
        self.hear(0, standings)

    def hear(self, node: int, standings: Sequence[Standing]) -> None:
        """Takes the answer of a node, if one is awaited."""
        if self._deadline is not None:
            self._answers[node] = standings

    def ask_for_node(self) -> None:
        """Asks on another node's behalf: a user's there, or node 0's."""
        if self.peers.is_head:
            self.ask_now()
        else:
            self._is_wanted_by_head = True
            self.asker.begin(self.look())

    def records(self) -> tuple[FailureRecord, ...]:
        """Failures of the ranks that the others wait for, if they ended the run."""
        return () if self.proof is None else failure_records(self.proof, self._proven_at)

    @property
    def _interval(self) -> float:
        return look_interval(self.times.report)

    @property
    def _is_watching(self) -> bool:
        return self.peers.is_head and self.times.report > 0 and not self._is_over

    def _awaited(self) -> set[int]:
        """The nodes whose answers are awaited."""
        gone = self.peers.ended.keys() | self.peers.lost.keys() | self.peers.mute
        return {0, *self.peers.connections.keys() - gone}

    def _begin(self) -> None:
        """Asks all ranks of all nodes, or those of this node if it isn't node 0."""
        self._answers.clear()
        self._deadline = time.monotonic() + ANSWER
        self.asker.begin(self.look())
        self.peers.send(Ask())

    def _judge(self) -> None:
        """Draws the conclusion from the answers."""
        self._deadline, wanted, self._is_wanted = None, self._is_wanted, False
        if self._is_over and not wanted:
            return
        standings = tuple(self._standings())
        running = (
            standing.quiet
            for standing in standings
            if standing.state and standing.phase is not Phase.ENDED
        )
        quiet = min(running, default=0.0)
        now = time.monotonic()
        # Another node moves, or this one has just begun again.
        if quiet < self._limit and not wanted:
            self._again = now + self._limit - quiet
            return
        report = attributed(standings, quiet, self._limit, self._last)
        if quiet < self._limit:
            self.show(report)
            return
        self.at_end = frozenset() if self.peers.connections else hung_at_end(report.standings)
        timeout = self.times.timeout
        has_run_out = timeout is not None and quiet >= timeout
        report = replace(report, is_proof=report.is_proof or has_run_out)
        self._again = now + self.times.report
        if timeout is not None and quiet < timeout:
            self._again = min(self._again, now + timeout - quiet)
        self._last, shown = report, self._shown
        is_news = shown is None or (shown.kind, shown.culprits) != (report.kind, report.culprits)
        is_due = report.is_proof or is_worth_showing(report, self.times.report)
        if wanted or (is_news and is_due):
            self._shown = report
            self.show(report)
        if report.is_proof:
            why = f"--hang-timeout is {timeout:g} s" if has_run_out else "waiting can't help"
            self.notice(f"nothing has moved for {quiet:.0f} s, and {why}: the run is ended")
            self.proof, self._proven_at = report, now

    def _standings(self) -> Iterator[Standing]:
        """The positions of all ranks; ranks of unresponsive nodes are unreachable."""
        for node, ranks in enumerate(self.ranks):
            if node in self._answers:
                yield from self._answers[node]
            elif node in self.peers.ended:
                yield from (Standing(rank, phase=Phase.ENDED, state="") for rank in ranks)
            elif node in self.peers.connections:
                host = self.peers.connections[node].peer
                problem = f"the launcher of node {node} ({host}) doesn't answer"
                for rank in ranks:
                    yield Standing(rank, host, state="", problem=problem, quiet=self._limit)

    def _note_movement(self) -> None:
        """Forgets a standstill that is over."""
        if self._shown is not None:
            self.notice("the ranks move again")
        self._last = self._shown = None
        self.at_end = frozenset()
        self._again = 0.0


def quiet_of(rows: Sequence[RankProgress], alive: set[int]) -> float:
    """Seconds since any running rank last moved; if none is left, since the last one ended."""
    running = [row for row in rows if row.rank in alive]
    return min((row.quiet for row in running or rows), default=0.0)


def limit_of(rows: Sequence[RankProgress], times: HangTimes) -> float:
    """Seconds without a movement after which the ranks are asked, before the run is ended."""
    longest = max((row.longest_quiet for row in rows), default=0.0)
    usual = min(max(times.report, FACTOR * longest), MOST * times.report)
    return usual if times.timeout is None else min(usual, times.timeout)


def is_worth_showing(report: HangReport, patience: float) -> bool:
    """Whether the user should read an unrequested report.

    A rank that works isn't a hang; it is reported after a long while, as the others' collective may
    time out. Before the first step, a program in which no rank waits may be meant so: a server, or
    a loop that isn't a training.
    """
    match report.kind:
        case HangKind.BUSY:
            return report.quiet >= MOST * patience
        case HangKind.IDLE | HangKind.UNKNOWN:
            has_begun = any(standing.step for standing in report.standings)
            return bool(has_begun or report.waiting)
        case _:
            return True
