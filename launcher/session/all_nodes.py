"""Runs attempts on the nodes that are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from ..checkpoints.resume_point import Start
from ..diagnosis.attempt import Attempt, Failed, Outcome, outcome_of
from ..hangs import dumps, failure
from ..nodes.attempt_end import AttemptEnd
from ..nodes.messages import Order
from ..nodes.peers import Peers
from ..planning.plan import Plan
from ..planning.search import Rules
from ..workers.attempt import run_attempt
from ..workers.environment import NodeContext
from ..workers.forkserver.client import Server
from ..workers.forkserver.tcp_store import Store
from ..workers.watch import Watch
from .console import Reporter
from .resume import clean_up
from .settling import Settling


@dataclass(slots=True)
class AllNodes:
    """Node 0's workers, and the launchers of the other nodes.

    Attributes:
        peers: the other nodes; after an attempt, those that are left.
        informed: called with the plan in force whenever workers reveal more of the training.
        unreached: keys of questions whose answers didn't reach every rank, see `Settling`.
    """

    server: Server
    peers: Peers
    reporter: Reporter
    informed: Callable[[Plan], None]
    unreached: set[str] = field(default_factory=set)

    def run(self, attempt: Attempt, start: Start, rules: Rules) -> Outcome:
        """Runs an attempt on all nodes to its end."""
        plan, server, reporter = attempt.plan, self.server, self.reporter
        port = plan.request.placement.meeting
        server.store = Store.open(port)
        if attempt.number == 0 and port not in (0, server.store.port):
            reporter.note(f"port {port} is in use: the workers meet at port {server.store.port}")
        order = Order(
            attempt=attempt.number,
            run_id=server.mark,
            rank=0,
            workers=plan.request.nodes,
            port=server.store.port,
            preset=plan.preset.settings(),
            overrides=plan.overrides,
            replaced=plan.replaced,
            resume=start.resume,
        )
        environment = plan.hardware.accelerator.environment
        node = NodeContext(plan.request, server, environment, start.variable)
        self.peers.send_orders(order)
        settling = Settling(attempt, rules, self.unreached, reporter, self.informed)
        watch = Watch(settling, reporter.note, server.extend, partial(reporter.hung, attempt))
        try:
            part = run_attempt(order, node, attempt.folder, watch, self.peers)
        finally:
            server.close_store()
        clean_up(start)
        self.peers = self.peers.survivors()
        outcome = outcome_of(settling.attempt, part)
        settled = settling.seen(outcome.seen.observed, outcome.seen.model)
        seen = replace(
            outcome.seen, model=settled.model, asked=settled.asked, framework=settled.framework
        )
        return self._with_dumps(replace(outcome, seen=seen), part)

    def _with_dumps(self, outcome: Outcome, part: AttemptEnd) -> Outcome:
        """A failure with the ranks that the others waited for, if their recorders have left dumps.

        The messages of NCCL's and HCCL's watchdogs only name the ranks that waited.
        """
        dumped = [standing for end in part.ended.values() for standing in end.standings]
        if not isinstance(outcome, Failed) or not outcome.records or not dumped:
            return outcome
        report = dumps.report_on(dumped)
        self.reporter.hung(outcome.attempt, report)
        first, *others = outcome.records
        culprits = failure.records(report, first.at) if report.culprits else ()
        return replace(outcome, records=(first, *culprits, *others))
