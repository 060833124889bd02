"""Runs attempts on the nodes that are left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..checkpoints.resume_point import Start
from ..core.request import Fix
from ..core.settings import Value
from ..diagnosis.attempt import Attempt, Failed, Outcome, Seen, outcome_of
from ..diagnosis.new_constraints import is_hopeless
from ..diagnosis.observed import with_seen
from ..hangs import dumps, failure
from ..hangs.report import HangReport
from ..nodes.attempt_end import AttemptEnd
from ..nodes.messages import Order
from ..nodes.peers import Peers
from ..planning.plan import Plan
from ..planning.planner import planned
from ..planning.search import Rules
from ..workers.attempt import run_attempt
from ..workers.forkserver.client import Server
from ..workers.forkserver.tcp_store import Store
from ..workers.start import Own
from ..workers.watch import Watch
from .resume import clean_up

Permission = Callable[[Mapping[str, Value], dict[str, Any] | None], bool]
"""Whether a plan may continue, given the settings, facts and model that its workers observed."""


@dataclass(slots=True)
class AllNodes:
    """Node 0's workers, and the launchers of the other nodes.

    Attributes:
        server: this node's fork server.
        peers: the other nodes; after an attempt, those that are left.
        notice: called with a line that the user should see at once.
        hung: called with an attempt that doesn't move and where its ranks stand.
    """

    server: Server
    peers: Peers
    notice: Callable[[str], None]
    hung: Callable[[Attempt, HangReport], None]

    def launch(self, attempt: Attempt, start: Start, rules: Rules) -> Outcome:
        """Runs an attempt on all nodes to its end."""
        plan, server = attempt.plan, self.server
        port = plan.request.placement.meeting
        server.store = Store.open(port)
        if attempt.number == 0 and port not in (0, server.store.port):
            self.notice(f"port {port} is in use: the workers meet at port {server.store.port}")
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
        own = Own(plan.hardware.accelerator.environment, start.variable)
        self.peers.send_orders(order)
        watch = Watch(
            permission(attempt, rules), self.notice, server.extend, partial(self.hung, attempt)
        )
        try:
            part = run_attempt(order, own, plan.request, server, attempt.folder, watch, self.peers)
        finally:
            server.close_store()
        clean_up(start)
        self.peers = self.peers.survivors()
        return self._with_dumps(outcome_of(attempt, part), part)

    def _with_dumps(self, outcome: Outcome, part: AttemptEnd) -> Outcome:
        """A failure with whom the ranks waited for, where their recorders have left dumps.

        What NCCL's and HCCL's watchdogs say of a timeout names the ranks that waited.
        """
        dumped = [stood for end in part.ended.values() for stood in end.standings]
        if not isinstance(outcome, Failed) or not outcome.records or not dumped:
            return outcome
        report = dumps.report_on(dumped)
        self.hung(outcome.attempt, report)
        first, *others = outcome.records
        found = failure.records(report, first.at) if report.culprits else ()
        return replace(outcome, records=(first, *found, *others))


def permission(attempt: Attempt, rules: Rules) -> Permission:
    """Whether the attempt may continue with what its workers observe; under `suggest` always."""
    answers: dict[tuple[frozenset[tuple[str, Value]], bool], bool] = {}

    def allowed(observed: Mapping[str, Value], model: dict[str, Any] | None) -> bool:
        if attempt.plan.request.limits.fix is Fix.SUGGEST:
            return True
        key = frozenset(observed.items()), model is None
        if key not in answers:  # a search is slow, and all workers report the same
            answers[key] = _may_go_on(attempt, Seen(observed, model), rules)
        return answers[key]

    return allowed


def _may_go_on(attempt: Attempt, seen: Seen, rules: Rules) -> bool:
    """Whether nothing forbids the attempt, given what its workers observed."""
    plan = attempt.plan
    workload = with_seen(plan.workload, attempt, seen)
    if not is_hopeless(attempt, workload, rules):
        return True
    better = planned(
        plan.request, workload, plan.hardware, rules.constraints, has_failed=rules.has_failed
    )
    # Where the memory estimate still hangs on what is only assumed, it doesn't count.
    is_unsure = isinstance(better, Plan) and better.doubt is not None
    return is_unsure and not is_hopeless(attempt, workload, replace(rules, by_memory=False))
