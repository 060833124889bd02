"""Warnings before a launch: silent faults of versions, lines of the user's that may fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..catalogue.changed_defaults import upgrade_sentences
from ..catalogue.entry import KnownFailure, constraints_of
from ..core.choices import Adapter, Engine, Framework, Precision
from ..core.script import SourceLocation
from ..core.settings import Fact, Name, Value
from ..planning.forbidden import point_of
from ..planning.plan import Plan
from ..workload.script.files import user_files
from ..workload.script.line_searches import spots

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
        f"{entry.subject}\n{_fix_of(entry, workload.versions)}: safe-launch explain {entry.id}"
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


def _fix_of(entry: KnownFailure, versions: Mapping[str, str]) -> str:
    """The releases with a fix, and the installed versions."""
    mended = [
        f"fixed in {name} {match[1]} (installed: {versions[name]})"
        for name, allowed in entry.when.items()
        if (match := BELOW.search(allowed))
    ]
    return ", ".join(mended) or "no release fixes it"


@dataclass(frozen=True, slots=True)
class SuspectLine:
    """A user's line that fails under the plan, if it does as it seems."""

    entry: KnownFailure
    spot: SourceLocation


def _has_several_devices(plan: Plan) -> bool:
    """Whether there are several ranks, each of which sees several devices."""
    here = plan.request.nproc * plan.request.placement.beside
    return here > 1 and plan.hardware.accelerators > 1


def _is_zero(plan: Plan, least: int) -> bool:
    """Whether DeepSpeed trains with at least that ZeRO stage."""
    return plan.workload.engine is Engine.DEEPSPEED and (plan.preset.zero_stage or 0) >= least


def _is_plain_loop(plan: Plan) -> bool:
    """Whether the training loop is the user's own, without DeepSpeed or FSDP."""
    is_ddp = plan.workload.engine in (None, Engine.DDP)
    return plan.workload.framework is Framework.NONE and is_ddp


def _is_on_trainer(plan: Plan) -> bool:
    return plan.workload.framework is Framework.TRANSFORMERS


def _uses_gradient_scaler(plan: Plan) -> bool:
    """Whether a full fine-tuning uses torch's gradient scaler."""
    adapted = plan.workload.value(Fact.ADAPTER) == Adapter.LORA
    partly = adapted or plan.workload.value(Fact.FROZEN_PARAMETERS) is True
    is_ddp = plan.workload.engine in (None, Engine.DDP)
    is_fp16 = plan.preset.precision is Precision.FP16
    return is_fp16 and is_ddp and not partly and _is_on_trainer(plan)


def _has_transformers(plan: Plan, allowed: str) -> bool:
    """Whether the installed version of transformers is among these."""
    from packaging.specifiers import SpecifierSet

    version = plan.workload.versions.get("transformers")
    return version is not None and SpecifierSet(allowed, prereleases=True).contains(version)


HARMS: dict[str, Callable[[Plan], bool]] = {
    "device_maps": lambda plan: (
        _has_several_devices(plan)
        and plan.workload.framework is not Framework.NONE
        and not _is_zero(plan, 3)
    ),
    "device_map_arguments": lambda plan: _is_zero(plan, 3) and _is_on_trainer(plan),
    "half_precision_loads": _uses_gradient_scaler,
    "fixed_devices": lambda plan: _has_several_devices(plan) and _is_plain_loop(plan),
    "no_sync_calls": lambda plan: _is_zero(plan, 2) and plan.workload.framework is Framework.NONE,
    "pipeline_modules": lambda plan: (plan.preset.accumulation or 1) > 1,
    # transformers 5 gives the blocks' inputs a gradient by itself; measured with 4.57.1 and 5.23.
    "frozen_block_inputs": lambda plan: _is_on_trainer(plan) and _has_transformers(plan, "<5"),
    # The arguments were removed in 4.57.1 at the latest.
    "outdated_arguments": lambda plan: _has_transformers(plan, ">=4.57"),
}
"""The plans under which the lines that a search finds do harm; all plans if it isn't here."""


def suspect_lines(plan: Plan, entries: Sequence[KnownFailure]) -> tuple[SuspectLine, ...]:
    """The user's lines that entries point at and that may fail under the plan."""
    relevant = [entry for entry in entries if entry.points_at is not None and is_open(entry, plan)]
    if not relevant:
        return ()
    files = tuple(map(str, dict.fromkeys(user_files(plan.request))))
    return tuple(
        SuspectLine(entry, spot)
        for entry in relevant
        if entry.points_at is not None
        for spot in spots(entry.points_at, files)
    )


def is_open(entry: KnownFailure, plan: Plan) -> bool:
    """Whether the plan would be forbidden if the facts that the entry proves were known.

    Facts that are already known take precedence. No plan avoids an entry that forbids nothing.
    """
    harms = HARMS.get(entry.points_at or "")
    if harms is not None and not harms(plan):
        return False
    point: dict[Name, Value] = {**dict(entry.proves.items()), **plan.workload.facts}
    point.update(plan.preset.settings().items())
    rules = constraints_of(entry)
    return not rules or any(rule.forbids(point) for rule in rules)
