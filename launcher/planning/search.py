"""Searches for the preset nearest to the requested one that fits and isn't forbidden."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

from ..core.choices import Checkpointing, Engine, Framework, Offload
from ..core.constraint import Cause, CauseKind, Constraint
from ..core.hardware import Hardware
from ..core.preset import preset_of
from ..core.request import LaunchRequest
from ..core.settings import BATCH, Fact, Setting, Value
from ..core.workload import Workload
from .budget import hardware_constraints, over_budget
from .estimates.estimate import Ranks, ranks_of
from .estimates.memory import calibrated_sizes, estimate_of
from .estimates.model_sizes import ModelSizes
from .estimates.step_time import step_seconds
from .estimates.training_states import Candidate
from .fewer_nodes import fewer, growth
from .forbidden import first_that_forbids, point_of
from .plan import Change, Considered, NoPlan, Plan
from .preferences import rank

KEPT = Constraint((), Cause(CauseKind.REQUEST, "batch", "the global batch is kept"))
"""The cause of a changed accumulation, if the micro batch changes."""
IN_FORCE = Constraint(
    (), Cause(CauseKind.REQUEST, "in force", "it is already in force and can't be changed")
)
"""The cause of an earlier change, if nothing forbids the original value any more."""
FREE: Candidate = MappingProxyType({})
"""No fixed settings."""
ALONE = Fraction(1)
"""The growth of a rank's share of the batch if no worker was lost."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules that may forbid a candidate: constraints and the machine's memory.

    Attributes:
        constraints: constraints from the catalogue, the hardware and the attempts so far.
        by_memory: whether the memory estimate forbids too.
        has_failed: whether an attempt has failed. Before, known failures that depend on assumptions
            don't count: the workers will report the facts.
    """

    constraints: tuple[Constraint, ...]
    hardware: Hardware
    ranks: Ranks
    by_memory: bool = True
    has_failed: bool = False


def rules_of(
    request: LaunchRequest,
    hardware: Hardware,
    constraints: Sequence[Constraint],
    *,
    has_failed: bool = False,
) -> Rules:
    """The rules of a launch."""
    every = dict.fromkeys((*constraints, *hardware_constraints(hardware)))
    return Rules(tuple(every), hardware, ranks_of(request, hardware), has_failed=has_failed)


def resolve(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    constraints: Sequence[Constraint],
    *,
    by_memory: bool = True,
    has_failed: bool = False,
    fixed: Candidate = FREE,
) -> Plan | NoPlan:
    """Plans the workload, or returns the reasons against any plan.

    Keeps the request if it may fit, and candidates that need no more memory; others must fit by
    their bound. If no bound fits but some candidate may fit, chooses the one with the least memory.
    Settings in `--never-change` keep their requested values; `fixed` ones can't be changed any more
    and have their values in force. For the other arguments see `Rules`.
    """
    rules = rules_of(request, hardware, constraints, has_failed=has_failed)
    rules = replace(rules, by_memory=by_memory)
    sizes = calibrated_sizes(workload, rules.hardware, rules.ranks)
    requested = workload.requested
    reference = evaluate(requested, workload, rules, sizes)
    every = [
        (candidate, evaluate(candidate, workload, rules, sizes))
        for candidate in candidates(workload, growth(request), fixed)
        if all(candidate.get(kept) == requested.get(kept) for kept in request.limits.kept)
    ]
    every.sort(key=lambda pair: rank(pair[0], pair[1], workload, reference))
    considered = tuple(evaluated for _, evaluated in every)
    tolerated = reference.expected if reference.may_fit else 0
    tight = [pair for pair in every if pair[1].is_tight]
    able = [
        pair
        for pair in every
        if pair[1].constraint is None or (pair in tight and pair[1].expected <= tolerated)
    ]
    if not able and not tight:
        return NoPlan(request, workload, hardware, considered)
    candidate, chosen = able[0] if able else min(tight, key=lambda pair: pair[1].bound)
    return Plan(
        request=request,
        workload=workload,
        hardware=hardware,
        preset=chosen.preset,
        changes=_changes(
            candidate, workload, rules, reference.constraint, fewer(request, workload), fixed
        ),
        considered=considered,
        chosen=chosen,
    )


def as_asked(request: LaunchRequest, workload: Workload, hardware: Hardware) -> Plan:
    """The plan that changes nothing, even if it is forbidden."""
    rules = rules_of(request, hardware, ())
    only = evaluate_candidate(workload.requested, workload, rules)
    return Plan(request, workload, hardware, only.preset, (), (only,), only)


def evaluate(
    candidate: Candidate, workload: Workload, rules: Rules, sizes: ModelSizes | None
) -> Considered:
    """Evaluates a candidate's memory, time and constraint."""
    constraint = first_that_forbids(
        candidate, workload, rules.constraints, has_failed=rules.has_failed
    )
    if sizes is None:
        return Considered(preset_of(candidate), constraint)
    hardware, ranks = rules.hardware, rules.ranks
    estimate = estimate_of(sizes, candidate, hardware, ranks)
    seconds = step_seconds(sizes, candidate, hardware, ranks)
    available = (hardware, ranks, sizes.limit)
    too_much = over_budget(candidate, estimate, *available)
    may_fit = over_budget(candidate, estimate, *available, at_least=True) is None
    if constraint is None and rules.by_memory:
        constraint = too_much
    return Considered(preset_of(candidate), constraint, estimate, seconds, may_fit)


def forbidden_by(candidate: Candidate, workload: Workload, rules: Rules) -> Constraint | None:
    """The first constraint that forbids the candidate, if any."""
    return evaluate_candidate(candidate, workload, rules).constraint


def evaluate_candidate(candidate: Candidate, workload: Workload, rules: Rules) -> Considered:
    """Evaluates a single candidate."""
    sizes = calibrated_sizes(workload, rules.hardware, rules.ranks)
    return evaluate(candidate, workload, rules, sizes)


def candidates(
    workload: Workload, factor: Fraction = ALONE, fixed: Candidate = FREE
) -> Iterator[Candidate]:
    """All assignments that guards can apply, including the request.

    Candidates leave out unknown settings, whose values in the script remain. Micro batch and
    accumulation change together to keep the global batch, even if workers were lost: then a rank's
    share of it grows by `factor`. The `fixed` settings can't be changed any more.
    """
    requested = workload.requested
    single = {
        setting: [fixed[setting]] if setting in fixed else _alternatives(setting, value, workload)
        for setting, value in requested.items()
        if setting not in BATCH
    }
    set_batch = {setting: value for setting, value in fixed.items() if setting in BATCH}
    pairs = [set_batch] if set_batch else _batches(workload, factor)
    for values in itertools.product(*single.values()):
        settings = dict(zip(single, values, strict=True))
        if _is_possible(settings, requested):
            for pair in pairs:
                yield {**settings, **pair}


def _is_possible(settings: Candidate, requested: Candidate) -> bool:
    """Whether DeepSpeed supports a combination; the request always counts as possible.

    DeepSpeed offloads no parameters below stage 3, and no optimizer at stage 0
    (deepspeed/runtime/zero/config.py).
    """
    stage, offload = settings.get(Setting.ZERO_STAGE), settings.get(Setting.OFFLOAD)
    if stage is None or offload in (None, requested.get(Setting.OFFLOAD)):
        return True
    least = {Offload.NONE: 0, Offload.OPTIMIZER: 1, Offload.OPTIMIZER_AND_PARAMETERS: 3}
    return int(stage) >= least[Offload(str(offload))]


def _alternatives(setting: Setting, requested: Value, workload: Workload) -> list[Value]:
    """The values of a setting that guards can apply, given the requested one."""
    engine, framework = workload.engine, workload.framework
    lightest = setting.row.values.lightest
    lighter = [requested] if lightest in (None, requested) else [requested, lightest]
    if setting is Setting.GRADIENT_CHECKPOINTING:
        # Only the Trainer has a switch to turn it on; under FSDP, accelerate's is non-reentrant.
        is_switchable = requested != Checkpointing.OFF or framework is Framework.TRANSFORMERS
        values = lighter if engine is Engine.FSDP else setting.values
        return values if is_switchable else [requested]
    if engine is None or setting.row.engine is not engine:
        return [requested]
    if engine is not Engine.FSDP:
        return setting.values
    # accelerate creates FSDP2's units, whose settings can be changed from outside.
    is_second = workload.value(Fact.FSDP_VERSION) == 2
    return lighter if is_second and framework is not Framework.NONE else [requested]


def _batches(workload: Workload, factor: Fraction) -> list[Candidate]:
    """The requested micro batch and accumulation, and all with the same product if settable."""
    requested = workload.requested
    micro, steps = requested.get(Setting.MICRO_BATCH), requested.get(Setting.ACCUMULATION)
    if micro is None or steps is None or workload.framework is not Framework.TRANSFORMERS:
        return [{setting: value for setting, value in requested.items() if setting in BATCH}]
    batch = int(int(micro) * int(steps) * factor)
    small = [size for size in range(1, math.isqrt(batch) + 1) if batch % size == 0]
    least = int(micro) if workload.value(Fact.LOSS_SPANS_BATCH) else 1
    return [
        {Setting.MICRO_BATCH: size, Setting.ACCUMULATION: batch // size}
        for size in sorted({*small, *(batch // divisor for divisor in small)})
        if least <= size <= int(micro)
    ]


def _changes(
    candidate: Candidate,
    workload: Workload,
    rules: Rules,
    together: Constraint | None,
    lost: Constraint | None,
    fixed: Candidate,
) -> tuple[Change, ...]:
    """All changes of the script's settings, with their causes.

    The cause is a launcher option, or the constraint that forbids the chosen candidate with only
    this setting as requested, or else the constraint that forbids the whole request.
    """
    requested = workload.requested
    changes = []
    for setting, new in candidate.items():
        stated = workload.known.get(setting)
        if stated is not None and stated.value == new:
            continue
        wanted = workload.wanted.get(setting)
        single = forbidden_by({**candidate, setting: requested[setting]}, workload, rules)
        if wanted is not None and wanted.value == new:
            cause: Constraint | None = Constraint(
                (), Cause(CauseKind.REQUEST, wanted.source, f"requested by {wanted.source}")
            )
        elif setting is Setting.ACCUMULATION:
            cause = lost or KEPT
        else:
            cause = single or (lost if setting is Setting.MICRO_BATCH else None) or together
            cause = cause or (IN_FORCE if setting in fixed else None)
        assert cause is not None, "the resolver changed a setting that nothing forbids"
        old, source = (None, "nobody") if stated is None else (stated.value, stated.source)
        changes.append(Change(setting, old, source, new, cause))
    return tuple(changes)


def contradiction(refused: NoPlan) -> tuple[Constraint, ...]:
    """A minimal set of constraints that forbid all candidates.

    Of the memory constraints of each candidate, only the smallest candidate's is included.
    """
    too_large = [candidate for candidate in refused.rejected if candidate.is_forbidden_by_memory]
    others = [candidate for candidate in refused.rejected if not candidate.is_forbidden_by_memory]
    needed = list(
        dict.fromkeys(candidate.constraint for candidate in others if candidate.constraint)
    )
    for constraint in list(needed):
        rest = [other for other in needed if other is not constraint]
        points = (point_of(candidate.preset.settings(), refused.workload) for candidate in others)
        if all(any(other.forbids(point) for other in rest) for point in points):
            needed = rest
    if too_large:
        smallest = min(too_large, key=lambda candidate: candidate.bound)
        needed += [smallest.constraint] if smallest.constraint else []
    return tuple(needed)
