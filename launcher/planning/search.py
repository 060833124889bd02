"""The search for the nearest preset to what was asked that fits and that nothing forbids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..core.constraint import Cause, CauseKind, Constraint
from ..core.hardware import Hardware
from ..core.preset import preset_of
from ..core.request import LaunchRequest
from ..core.settings import Checkpointing, Engine, Fact, Framework, Name, Offload, Setting, Value
from ..core.workload import Workload
from .budget import hardware_constraints, over_budget
from .estimates.memory import estimate_of, job_for
from .estimates.model_sizes import Job
from .estimates.ranks import Ranks, ranks_of
from .estimates.step_time import step_seconds
from .fewer_nodes import fewer, growth
from .plan import Change, Considered, NoPlan, Plan

Candidate = Mapping[Setting, Value]
ALONE = Fraction(1)
"""The growth of a rank's share of the batch where no worker was lost."""
SLOWER = 0.05
"""Predicted times that differ by less than this share of what was asked count as equal."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All that may forbid a candidate: the catalogue and the lessons, and what the machine has.

    Attributes:
        constraints: of the catalogue, the hardware and the attempts so far.
        hardware: what there is.
        ranks: who trains together.
        by_memory: whether the memory estimate forbids too.
    """

    constraints: tuple[Constraint, ...]
    hardware: Hardware
    ranks: Ranks
    by_memory: bool = True


def rules_of(
    request: LaunchRequest, hardware: Hardware, constraints: Sequence[Constraint]
) -> Rules:
    """The rules of a launch."""
    every = dict.fromkeys((*constraints, *hardware_constraints(hardware)))
    return Rules(tuple(every), hardware, ranks_of(request, hardware))


def resolve(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    constraints: Sequence[Constraint],
    *,
    by_memory: bool = True,
) -> Plan | NoPlan:
    """The plan for the workload, or why there is none.

    Where the bound of no candidate fits, but what is expected of some does, it is the one that
    needs the least. Deterministic: the same values give the same plan on every node.
    """
    rules = replace(rules_of(request, hardware, constraints), by_memory=by_memory)
    job = job_for(workload, rules.hardware, rules.ranks)
    asked = workload.asked
    whole = judged(asked, workload, rules, job)
    every = [
        (candidate, judged(candidate, workload, rules, job))
        for candidate in candidates(workload, growth(request))
    ]
    every.sort(key=lambda pair: rank(pair[0], pair[1], workload, whole))
    considered = tuple(evaluated for _, evaluated in every)
    able = [pair for pair in every if pair[1].constraint is None]
    tight = [pair for pair in every if pair[1].is_tight]
    if not able and not tight:
        return NoPlan(request, workload, hardware, considered)
    candidate, chosen = able[0] if able else min(tight, key=lambda pair: _least(pair[1]))
    return Plan(
        request=request,
        workload=workload,
        hardware=hardware,
        preset=chosen.preset,
        changes=_changes(candidate, workload, rules, whole.constraint, fewer(request, workload)),
        considered=considered,
        chosen=chosen,
    )


def _least(evaluated: Considered) -> int:
    return 0 if evaluated.estimate is None else evaluated.estimate.bound


def as_asked(request: LaunchRequest, workload: Workload, hardware: Hardware) -> Plan:
    """The plan that changes nothing, whatever is known against it."""
    rules = rules_of(request, hardware, ())
    only = judged(workload.asked, workload, rules, job_for(workload, hardware, rules.ranks))
    return Plan(request, workload, hardware, only.preset, (), (only,), only)


def judged(candidate: Candidate, workload: Workload, rules: Rules, job: Job | None) -> Considered:
    """One candidate with its memory, its time and what forbids it."""
    point = _point(candidate, workload)
    constraint = next(
        (constraint for constraint in rules.constraints if constraint.forbids(point)), None
    )
    if job is None:
        return Considered(preset_of(candidate), constraint)
    hardware, ranks = rules.hardware, rules.ranks
    estimate = estimate_of(job, candidate, hardware, ranks)
    seconds = step_seconds(job, candidate, hardware, ranks)
    there = (hardware, ranks, job.limit)
    too_much = over_budget(candidate, estimate, *there)
    fits = too_much is None or over_budget(candidate, estimate, *there, True) is None
    if constraint is None and rules.by_memory:
        constraint = too_much
    return Considered(preset_of(candidate), constraint, estimate, seconds, fits)


def forbidden_by(candidate: Candidate, workload: Workload, rules: Rules) -> Constraint | None:
    """The first constraint that forbids the candidate; None where it may be launched."""
    return judged_for(candidate, workload, rules).constraint


def judged_for(candidate: Candidate, workload: Workload, rules: Rules) -> Considered:
    """One candidate, judged by itself."""
    job = job_for(workload, rules.hardware, rules.ranks)
    return judged(candidate, workload, rules, job)


def _point(candidate: Candidate, workload: Workload) -> dict[Name, Value]:
    point = workload.facts
    for setting, value in candidate.items():
        point[setting] = value
    return point


def candidates(workload: Workload, growth: Fraction = ALONE) -> Iterator[Candidate]:
    """Every assignment that the guards can bring about; what was asked is one of them.

    A setting that nobody knows stays out of every candidate: it remains as the script has it.
    Micro batch and accumulation change together, so that the global batch is kept, also where
    fewer workers are left than it was meant for.

    Args:
        workload: what is asked, and who could be asked otherwise.
        growth: by how much a rank's share of the batch grows, since workers were lost.
    """
    asked = workload.asked
    batch = (Setting.MICRO_BATCH, Setting.ACCUMULATION)
    single = {
        setting: _alternatives(setting, value, workload)
        for setting, value in asked.items()
        if setting not in batch
    }
    for values in itertools.product(*single.values()):
        settings = dict(zip(single, values, strict=True))
        if _is_possible(settings, asked):
            for pair in _batches(workload, growth):
                yield {**settings, **pair}


def _is_possible(settings: Candidate, asked: Candidate) -> bool:
    """Whether DeepSpeed has such a combination; what was asked is never left out.

    It keeps no parameters in host memory below stage 3, and no optimizer at stage 0
    (deepspeed/runtime/zero/config.py).
    """
    stage, offload = settings.get(Setting.ZERO_STAGE), settings.get(Setting.OFFLOAD)
    if stage is None or offload in (None, asked.get(Setting.OFFLOAD)):
        return True
    least = {Offload.NONE: 0, Offload.OPTIMIZER: 1, Offload.OPTIMIZER_AND_PARAMETERS: 3}
    return int(stage) >= least[Offload(str(offload))]


def _alternatives(setting: Setting, asked: Value, workload: Workload) -> list[Value]:
    """The values that the guards can bring about for one setting, given what was asked."""
    match setting:
        case Setting.ZERO_STAGE if workload.engine is Engine.DEEPSPEED:
            return [0, 1, 2, 3]
        case Setting.OFFLOAD if workload.engine is Engine.DEEPSPEED:
            return [place.value for place in Offload]
        case Setting.GRADIENT_CHECKPOINTING:
            # A loop of the user's own has no switch that would turn checkpointing on.
            switchable = workload.framework is Framework.TRANSFORMERS
            if asked == Checkpointing.OFF and not switchable:
                return [asked]
            return [mode.value for mode in Checkpointing]
        case Setting.STATIC_GRAPH | Setting.FIND_UNUSED_PARAMETERS if workload.engine is Engine.DDP:
            return [False, True]
        case _:
            return [asked]


def _batches(workload: Workload, growth: Fraction) -> list[Candidate]:
    """Micro batch and accumulation as asked and, where they can be applied, their equals."""
    asked = workload.asked
    micro, steps = asked.get(Setting.MICRO_BATCH), asked.get(Setting.ACCUMULATION)
    if micro is None or steps is None or workload.framework is not Framework.TRANSFORMERS:
        return [
            {
                setting: value
                for setting, value in asked.items()
                if setting in (Setting.MICRO_BATCH, Setting.ACCUMULATION)
            }
        ]
    whole = int(int(micro) * int(steps) * growth)
    small = [size for size in range(1, math.isqrt(whole) + 1) if whole % size == 0]
    least = int(micro) if workload.value(Fact.LOSS_SPANS_BATCH) else 1
    return [
        {Setting.MICRO_BATCH: size, Setting.ACCUMULATION: whole // size}
        for size in sorted({*small, *(whole // divisor for divisor in small)})
        if least <= size <= int(micro)
    ]


def _distance(setting: Setting) -> Callable[[Candidate, Candidate], float]:
    """How far a number is from what was asked."""

    def distance(candidate: Candidate, asked: Candidate) -> float:
        return abs(float(candidate.get(setting, 0)) - float(asked.get(setting, 0)))

    return distance


def _differs(setting: Setting) -> Callable[[Candidate, Candidate], float]:
    """Whether a setting differs from what was asked."""
    return lambda candidate, asked: float(candidate.get(setting) != asked.get(setting))


def _switched(candidate: Candidate, asked: Candidate) -> float:
    """Whether checkpointing was turned on or off, beyond a change of its implementation."""
    name = Setting.GRADIENT_CHECKPOINTING
    off = Checkpointing.OFF
    return float((candidate.get(name) == off) != (asked.get(name) == off))


GIVEN_UP_LAST_FIRST: tuple[tuple[str, Callable[[Candidate, Candidate], float]], ...] = (
    ("precision: changes the numerics", _differs(Setting.PRECISION)),
    ("checkpointing on or off: activations in memory, or recomputed", _switched),
    ("offload: traffic between host and accelerator", _differs(Setting.OFFLOAD)),
    ("micro batch: more and smaller passes", _distance(Setting.MICRO_BATCH)),
    ("ZeRO stage: memory against communication", _distance(Setting.ZERO_STAGE)),
    ("DDP's static_graph: the script must keep a promise", _differs(Setting.STATIC_GRAPH)),
    ("DDP's find_unused_parameters", _differs(Setting.FIND_UNUSED_PARAMETERS)),
    ("checkpointing's implementation", _differs(Setting.GRADIENT_CHECKPOINTING)),
)
"""The order in which what the user asked for is given up, the dearest first."""


def departure(candidate: Candidate, asked: Candidate) -> tuple[float, ...]:
    """How much of what was asked the candidate gives up; smaller is better.

    Compared from the dearest setting to the cheapest; of two stages equally far the lower one
    wins, because it communicates less, and of two implementations of checkpointing the one without
    nested backward passes.
    """
    return (
        *(measure(candidate, asked) for _, measure in GIVEN_UP_LAST_FIRST),
        float(candidate.get(Setting.ZERO_STAGE, 0)),
        float(candidate.get(Setting.GRADIENT_CHECKPOINTING) == Checkpointing.REENTRANT),
    )


TRADED = (
    Setting.MICRO_BATCH,
    Setting.ACCUMULATION,
    Setting.ZERO_STAGE,
    Setting.OFFLOAD,
    Setting.GRADIENT_CHECKPOINTING,
)
"""The settings that trade memory for time."""


def rank(
    candidate: Candidate, evaluated: Considered, workload: Workload, whole: Considered
) -> tuple[float, ...]:
    """The order of preference, the smallest first.

    The numerics first; then whether something is given up that the user asked for explicitly; then
    how much slower than what was asked it is predicted to be, being faster is no merit; then how
    far it departs, the dearest setting first.
    """
    asked = workload.asked
    departed = departure(candidate, asked)
    given_up = any(
        candidate[setting] != value and workload.is_pinned(setting)
        for setting, value in asked.items()
        if setting in TRADED
        and (setting is not Setting.GRADIENT_CHECKPOINTING or _switched(candidate, asked))
    )
    slower = 0
    if evaluated.seconds is not None and whole.seconds:
        slower = max(0, round((evaluated.seconds / whole.seconds - 1) / SLOWER))
    return (departed[0], float(given_up), float(slower), *departed[1:], evaluated.seconds or 0.0)


def _changes(
    candidate: Candidate,
    workload: Workload,
    rules: Rules,
    whole: Constraint | None,
    lost: Constraint | None,
) -> tuple[Change, ...]:
    """Every departure from what the script asks for, with its cause.

    The cause is the launcher's own option, or what forbids the chosen candidate with that one
    setting as asked; for settings that move together it is what forbids the whole that was asked.
    """
    asked = workload.asked
    changes = []
    for setting, new in candidate.items():
        own = workload.known.get(setting)
        if own is not None and own.value == new:
            continue
        wanted = workload.wanted.get(setting)
        if wanted is not None and wanted.value == new:
            cause: Constraint | None = Constraint(
                (), Cause(CauseKind.REQUEST, wanted.source, f"asked for by {wanted.source}")
            )
        else:
            moved = lost if setting in (Setting.MICRO_BATCH, Setting.ACCUMULATION) else None
            single = forbidden_by({**candidate, setting: asked[setting]}, workload, rules)
            cause = single or moved or whole
        assert cause is not None, "the resolver changed a setting that nothing forbids"
        source = "nobody" if own is None else own.source
        changes.append(Change(setting, None if own is None else own.value, source, new, cause))
    return tuple(changes)


def contradiction(refused: NoPlan) -> tuple[Constraint, ...]:
    """The constraints that together forbid every candidate, without those that add nothing.

    Of memory's, which has one for each candidate, only that of the smallest candidate is told.
    """
    small = [candidate for candidate in refused.rejected if candidate.is_forbidden_by_memory]
    others = [candidate for candidate in refused.rejected if not candidate.is_forbidden_by_memory]
    needed = list(
        dict.fromkeys(candidate.constraint for candidate in others if candidate.constraint)
    )
    for constraint in list(needed):
        rest = [other for other in needed if other is not constraint]
        points = (_point(candidate.preset.settings(), refused.workload) for candidate in others)
        if all(any(other.forbids(point) for other in rest) for point in points):
            needed = rest
    if small:
        least = min(
            small, key=lambda candidate: candidate.estimate.bound if candidate.estimate else 0
        )
        needed += [least.constraint] if least.constraint else []
    return tuple(needed)
