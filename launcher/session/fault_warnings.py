"""Warnings on silent faults of the installed versions that no setting of a plan avoids."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ..catalogue.changed_defaults import upgrade_sentences
from ..catalogue.entry import KnownFailure
from ..core.settings import Fact
from ..planning.forbidden import point_of
from ..planning.plan import Plan

BELOW = re.compile(r"<(\d[\w.]*)")
"""The end of a version range."""


def fault_warnings(plan: Plan, entries: Sequence[KnownFailure]) -> tuple[str, ...]:
    """Two lines for each entry that the plan triggers: its effect, and its remedy.

    And a line for each default that an upgrade has changed since an earlier run of the script.
    """
    # The settings that workers ask for are in the workload alone.
    settings = {**plan.preset.settings(), **plan.workload.requested, **plan.overrides}
    point = point_of(settings, plan.workload)
    point[Fact.DEVICE] = plan.hardware.accelerator.kind
    point[Fact.NODES] = len(plan.request.nodes)
    workload = plan.workload
    faults = tuple(
        f"{entry.subject}\n{_end(entry, workload.versions)}: safe-launch explain {entry.id}"
        for entry in entries
        if any(all(term.holds(point) for term in terms) for terms in entry.tells)
    )
    return (*faults, *upgrade_sentences(workload.earlier, workload.versions, point))


def print_new(
    plan: Plan, entries: Sequence[KnownFailure], printed: set[str], notice: Callable[[str], None]
) -> None:
    """Prints the warnings on a plan that aren't among the printed ones, and adds them to these."""
    for text in fault_warnings(plan, entries):
        if text not in printed:
            printed.add(text)
            notice(text)


def _end(entry: KnownFailure, versions: Mapping[str, str]) -> str:
    """The releases with a fix, and the installed versions."""
    mended = [
        f"fixed in {name} {match[1]} (installed: {versions[name]})"
        for name, allowed in entry.when.items()
        if (match := BELOW.search(allowed))
    ]
    return ", ".join(mended) or "no release fixes it"
