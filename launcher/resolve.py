"""The search for the preset that departs least from what was asked and that nothing forbids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from .constraint import Constraint
from .machine import Hardware
from .plan import Change, NoPlan, Plan, Rejection
from .preset import preset_of
from .request import LaunchRequest
from .settings import Checkpointing, Engine, Framework, Name, Setting, Value
from .workload import Workload

Candidate = Mapping[Setting, Value]


def resolve(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    constraints: Sequence[Constraint],
) -> Plan | NoPlan:
    """The plan for the workload, or why there is none.

    Deterministic: the same values give the same plan on every node.
    """
    asked = workload.asked
    rejected: list[Rejection] = []
    for candidate in sorted(candidates(workload), key=lambda one: departure(one, asked)):
        forbidding = forbidden_by(candidate, workload, constraints)
        if forbidding is None:
            return Plan(
                request=request,
                workload=workload,
                hardware=hardware,
                preset=preset_of(candidate),
                changes=_changes(candidate, workload, constraints),
                rejected=tuple(rejected),
            )
        rejected.append(Rejection(preset_of(candidate), forbidding))
    return NoPlan(workload, tuple(rejected))


def as_asked(request: LaunchRequest, workload: Workload, hardware: Hardware) -> Plan:
    """The plan that changes nothing, whatever is known against it."""
    return Plan(request, workload, hardware, preset_of(workload.asked), (), ())


def forbidden_by(
    candidate: Candidate, workload: Workload, constraints: Sequence[Constraint]
) -> Constraint | None:
    """The first constraint that forbids the candidate; None where it may be launched."""
    point = _point(candidate, workload)
    return next((one for one in constraints if one.forbids(point)), None)


def _point(candidate: Candidate, workload: Workload) -> dict[Name, Value]:
    point = workload.facts
    for setting, value in candidate.items():
        point[setting] = value
    return point


def candidates(workload: Workload) -> Iterator[Candidate]:
    """Every assignment that the guards can bring about; what was asked is one of them.

    A setting that nobody knows stays out of every candidate: it remains as the script has it.
    Micro batch and accumulation change together, so that their product is kept.
    """
    asked = workload.asked
    batch = (Setting.MICRO_BATCH, Setting.ACCUMULATION)
    single = {
        setting: _alternatives(setting, value, workload)
        for setting, value in asked.items()
        if setting not in batch
    }
    for values in itertools.product(*single.values()):
        for pair in _batches(workload):
            yield {**dict(zip(single, values, strict=True)), **pair}


def _alternatives(setting: Setting, asked: Value, workload: Workload) -> list[Value]:
    """The values that the guards can bring about for one setting, given what was asked."""
    match setting:
        case Setting.ZERO_STAGE if workload.engine is Engine.DEEPSPEED:
            return [0, 1, 2, 3]
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


def _batches(workload: Workload) -> list[Candidate]:
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
    whole = int(micro) * int(steps)
    small = [size for size in range(1, math.isqrt(whole) + 1) if whole % size == 0]
    return [
        {Setting.MICRO_BATCH: size, Setting.ACCUMULATION: whole // size}
        for size in sorted({*small, *(whole // one for one in small)})
        if size <= int(micro)
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
    wins, because it communicates less.
    """
    return (
        *(measure(candidate, asked) for _, measure in GIVEN_UP_LAST_FIRST),
        float(candidate.get(Setting.ZERO_STAGE, 0)),
    )


def _changes(
    candidate: Candidate, workload: Workload, constraints: Sequence[Constraint]
) -> tuple[Change, ...]:
    """Every departure from what was asked, with what forbids to take it back.

    The cause of a change is what forbids the chosen candidate with that one setting as asked; for
    settings that move together it is what forbids the whole that was asked.
    """
    asked = workload.asked
    whole = forbidden_by(asked, workload, constraints)
    changes = []
    for setting, new in candidate.items():
        if asked[setting] == new:
            continue
        taken_back = {**candidate, setting: asked[setting]}
        cause = forbidden_by(taken_back, workload, constraints) or whole
        assert cause is not None, "the resolver changed a setting that nothing forbids"
        source = workload.known[setting].source
        changes.append(Change(setting, asked[setting], source, new, cause))
    return tuple(changes)


def contradiction(refused: NoPlan) -> tuple[Constraint, ...]:
    """The constraints that together forbid every candidate, without those that add nothing."""
    needed = list(dict.fromkeys(one.constraint for one in refused.rejected))
    for constraint in list(needed):
        others = [one for one in needed if one is not constraint]
        points = (_point(one.preset.settings(), refused.workload) for one in refused.rejected)
        if all(any(other.forbids(point) for other in others) for point in points):
            needed = others
    return tuple(needed)
