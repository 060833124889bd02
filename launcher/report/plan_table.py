"""A plan in full, or why there is none: a table for people and a document for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..core.constraint import CauseKind
from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.settings import BATCH
from ..core.workload import Known, Workload
from ..planning.budget import capacity, gib
from ..planning.estimates.estimate import Component, Estimate, ranks_of
from ..planning.plan import Change, Considered, Doubt, NoPlan, Plan
from ..system.terminal import Row

SHOWN = 12
"""Candidates in the table at most; the document has all of them."""
GROUPS: tuple[tuple[str, tuple[Component, ...]], ...] = (
    ("params", (Component.PARAMETERS, Component.GATHERED)),
    ("grads", (Component.GRADIENTS, Component.BUCKETS, Component.STEP)),
    ("optim", (Component.OPTIMIZER,)),
    ("activ", (Component.ACTIVATIONS, Component.VISION)),
    ("logits", (Component.LOGITS,)),
    ("other", (Component.CONTEXT, Component.SLACK, Component.KEPT)),
)
"""The columns of the table, and the components that each adds up."""


def known_rows(workload: Workload) -> Iterator[Row]:
    """The known values of the workload, each with its source."""
    for name, known in workload.known.items():
        yield "known", f"{name.value} = {known.value} ({known.source})"
    for setting, known in workload.wanted.items():
        yield "asked", f"{setting.value} = {known.value} ({known.source})"
    for distribution, version in workload.versions.items():
        yield "version", f"{distribution} {version}"


def model_text(workload: Workload, trained: int | None) -> str:
    """The model as one line; `trained` elements include adapters, None if that isn't modelled."""
    model = workload.model
    if model is None:
        return "unknown until a worker reports it, so memory isn't estimated"
    name = model.architecture or model.model_type or "no name"
    text = f"{name}: {_count(model.parameters)} parameters"
    if trained is not None:
        text += f", {_count(trained)} trained"
    return f"{text} ({model.source})"


def _count(number: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:,}"


def components_text(estimate: Estimate) -> str:
    """The phase that needs the most memory, and that memory by component, in GiB a rank."""
    parts = ", ".join(
        f"{name.value} {gib(size)}"
        for name, size in estimate.peak.components.items()
        if size >= 2**20
    )
    return "\n".join([f"at the {estimate.peak.name}: {parts}", *estimate.assumed])


def label(candidate: Considered) -> str:
    """A candidate's name in the table, e.g. `zero3+optimizer/non_reentrant 2x8`."""
    settings = candidate.preset.settings()
    has_batch = settings.keys() >= {*BATCH}
    shown = [setting for setting in settings if has_batch or setting not in BATCH]
    shown.sort(key=lambda setting: setting.row.engine is None)  # the engine comes first
    name = "".join(setting.row.values.short(settings[setting]) for setting in shown)
    return name if name[:1].isalpha() else f"as in the script{name}"


def table(considered: Sequence[Considered], chosen: Considered | None) -> list[str]:
    """The candidates, the most preferred first: GiB a rank by component, relative time, verdict.

    Candidates that differ in nothing that is shown share a row.
    """
    distinct: dict[object, Considered] = {}
    for candidate in considered:
        visible = (candidate.bound, candidate.seconds, _verdict(candidate, chosen))
        distinct.setdefault((label(candidate), *visible), candidate)
    shown = _selected(tuple(distinct.values()), chosen)
    reference = next((candidate.seconds for candidate in considered if candidate.seconds), None)
    if chosen is not None and chosen.seconds:
        reference = chosen.seconds
    width = max(len(label(candidate)) for candidate in shown)
    head = " ".join(f"{name:>6}" for name, _ in GROUPS)
    lines = [f"  {'candidate':<{width}} {head} {'most':>6} {'time':>5}  verdict"]
    for candidate in shown:
        cells = [f"{'-':>6}"] * (len(GROUPS) + 1) + [f"{'-':>5}"]
        if candidate.estimate is not None:
            peak = candidate.estimate.peak.components
            sizes = [sum(peak.get(part, 0) for part in parts) for _, parts in GROUPS]
            cells = [f"{gib(size):>6}" for size in (*sizes, candidate.estimate.bound)]
            ratio = candidate.seconds / reference if candidate.seconds and reference else None
            cells.append(f"{'-' if ratio is None else format(ratio, '.2f'):>5}")
        name, verdict = label(candidate), _verdict(candidate, chosen)
        lines.append(f"  {name:<{width}} {' '.join(cells)}  {verdict}")
    left = len(distinct) - len(shown)
    return [*lines, f"  and {left} more (--json has all)"] if left > 0 else lines


def _selected(considered: Sequence[Considered], chosen: Considered | None) -> list[Considered]:
    """The first candidates, the chosen one and its neighbours."""
    if chosen is None:
        smallest = sorted(considered, key=lambda candidate: candidate.bound)
        return [*considered[: SHOWN // 2], *smallest[: SHOWN // 2]]
    at = considered.index(chosen)
    before = list(considered[: min(at, SHOWN - 4)])
    return [*before, *considered[at : at + SHOWN - len(before)]]


def _verdict(candidate: Considered, chosen: Considered | None) -> str:
    if candidate is chosen:
        doubtful = "chosen" if candidate.may_fit else "chosen, though doubtful"
        return "chosen, though tight" if candidate.is_tight else doubtful
    if candidate.constraint is None:
        return "possible" if candidate.may_fit else "doubtful"
    cause = candidate.constraint.cause
    return "doesn't fit" if cause.kind is CauseKind.MEMORY else cause.name


def document(
    request: LaunchRequest, workload: Workload, hardware: Hardware, outcome: Plan | NoPlan
) -> dict[str, Any]:
    """Everything that `plan --json` prints: sizes in bytes, times in seconds."""
    plan = outcome if isinstance(outcome, Plan) else None
    refused = outcome if isinstance(outcome, NoPlan) else None
    return {
        "command": request.command,
        "workers": request.nproc,
        "nodes": request.nodes,
        "world": request.world,
        "placement": dict(request.placement.sources),
        "hardware": hardware,
        "usable_bytes": capacity(hardware, ranks_of(request, hardware)),
        "framework": workload.framework,
        "versions": workload.versions,
        "known": {name.value: _known(known) for name, known in workload.known.items()},
        "wanted": {name.value: _known(known) for name, known in workload.wanted.items()},
        "model": workload.model,
        "notes": (*workload.notes, *workload.unmodelled),
        "not_understood": workload.not_understood,
        "feasible": plan is not None,
        "preset": plan.preset.settings() if plan else None,
        "changes": [*map(_change, plan.changes if plan else ())],
        "proposals": plan.proposals if plan else (),
        "doubt": _doubt(plan.doubt) if plan and plan.doubt else None,
        "remedies": refused.remedies if refused else (),
        "never_changed": dict(request.limits.never_changed),
        "barred": refused.barred.settings() if refused and refused.barred else None,
        "estimate": _estimate(plan.chosen.estimate) if plan else None,
        "candidates": [*map(_considered, plan.considered if plan else outcome.rejected)],
    }


def _known(known: Known) -> dict[str, Any]:
    return {
        "value": known.value,
        "origin": known.origin.name.lower(),
        "certainty": known.origin.certainty.name.lower(),
        "source": known.source,
    }


def _doubt(doubt: Doubt) -> dict[str, Any]:
    withheld = [_change(change) for change in doubt.withheld]
    return {"withheld": withheld, "missing": doubt.missing, "unproven": doubt.unproven}


def _change(change: Change) -> dict[str, Any]:
    return {
        "setting": change.setting,
        "old": change.old,
        "source": change.source,
        "new": change.new,
        "cause": change.constraint.cause,
    }


def _considered(candidate: Considered) -> dict[str, Any]:
    return {
        "preset": candidate.preset.settings(),
        "rejected": None if candidate.constraint is None else candidate.constraint.cause,
        "seconds": candidate.seconds,
        "estimate": _estimate(candidate.estimate),
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "expected": estimate.expected,
        "bound": estimate.bound,
        "host": estimate.host,
        "phase": estimate.peak.name,
        "components": {name.value: size for name, size in estimate.peak.components.items()},
        "assumed": estimate.assumed,
    }
