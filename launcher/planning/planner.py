"""Plans a launch with proposals, or returns the reasons against it with remedies.

A memory estimate may change or refuse a training only if it would do so for all values of uncertain
facts: unstated facts are assumed as light as possible. Otherwise the plan only reports the
estimate's change and the missing facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from ..core.choices import (
    Adapter,
    Attention,
    Engine,
    Loss,
    Optimizer,
    Output,
    Precision,
)
from ..core.constraint import Constraint
from ..core.errors import Refused
from ..core.hardware import Hardware
from ..core.preset import Preset
from ..core.request import LaunchRequest
from ..core.settings import (
    LEAST_MEMORY,
    OF_DEEPSPEED,
    OF_FSDP,
    Fact,
    Name,
    Setting,
    Value,
)
from ..core.workload import Certainty, Workload
from .estimates.training_states import Candidate
from .plan import Doubt, NoPlan, Plan
from .proven import proof_of, shipped_sweeps, wrong_cells
from .remedies import proposals, remedies, supposed
from .search import FREE, resolve, rules_of

STRICT = "--strict allows no change"
LIGHTEST: Mapping[Name, Value] = MappingProxyType(
    {
        Fact.ADAPTER: Adapter.LORA.value,
        Fact.LORA_RANK: 1,
        Fact.QUANTIZATION_BITS: 4,
        Fact.REFERENCE_MODEL: False,
        Fact.LANGUAGE_TRAINED: False,
        Fact.VISION_TRAINED: False,
        Fact.OPTIMIZER: Optimizer.SGD.value,
        Fact.FUSED_STEP: True,
        Fact.ATTENTION: Attention.FLASH.value,
        Fact.OUTPUT: Output.SCORES.value,
        Fact.LOSS: Loss.FUSED.value,
        Fact.LENGTHS_VARY: False,
        Fact.EXPANDABLE_SEGMENTS: True,
        Fact.ENGINE: Engine.DEEPSPEED.value,
        **dict(LEAST_MEMORY.items()),
        Fact.LOADED_PRECISION: Precision.BF16.value,
    }
)
"""The value with the least memory, by fact and setting."""
OF_ADAPTERS = (Fact.LORA_RANK, Fact.QUANTIZATION_BITS)
"""Facts of adapters: a model without any can't be trained in fewer bits."""
TOWERS = (Fact.LANGUAGE_TRAINED, Fact.VISION_TRAINED)
IN_THE_MODEL = (Fact.ADAPTER, *OF_ADAPTERS, *TOWERS)
"""Facts that a worker reports once it has created the model."""


def planned(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    constraints: Sequence[Constraint],
    *,
    has_failed: bool = False,
    fixed: Candidate = FREE,
) -> Plan | NoPlan:
    """Plans a launch; the arguments are those of `resolve`.

    If the memory estimate depends on an assumption, or the installed version isn't proven to train
    the same with the estimate's changes, the original settings are launched, unless something else
    forbids them.
    """
    constraints = (*constraints, *wrong_cells(workload, shipped_sweeps()))
    search = partial(resolve, constraints=constraints, has_failed=has_failed, fixed=fixed)
    result = search(request, workload, hardware)
    doubt = _doubt_of(result, search, fixed) or (None if has_failed else _unproven(result))
    if doubt is not None:
        launched = search(request, workload, hardware, by_memory=False)
        if isinstance(launched, Plan):
            return replace(launched, doubt=doubt)
    rules = rules_of(request, hardware, constraints, has_failed=has_failed)
    if isinstance(result, NoPlan):
        barred = _barred(result, search)
        return replace(result, remedies=remedies(result, rules), barred=barred)
    return replace(result, proposals=proposals(result, rules))


def _unproven(plan: Plan | NoPlan) -> Doubt | None:
    """The changes made only for memory, if the version is unproven with them."""
    if not isinstance(plan, Plan) or not (changes := plan.changed_for_memory):
        return None
    proof = proof_of(plan.preset.settings(), plan.workload, shipped_sweeps())
    if proof is None or proof.verdict is not None:
        return None
    return Doubt(changes, (), f"{proof.library} {proof.installed}")


def _barred(refused: NoPlan, search: Callable[..., Plan | NoPlan]) -> Preset | None:
    """The preset without `--never-change`; None if that changes nothing."""
    limits = refused.request.limits
    if not limits.never_changed:
        return None
    free = replace(refused.request, limits=replace(limits, never_changed=()))
    plan = search(free, refused.workload, refused.hardware)
    return plan.preset if isinstance(plan, Plan) else None


def refused_by_strict(request: LaunchRequest, plan: Plan) -> Refused | None:
    """The reason for which `--strict` refuses a plan, if any."""
    return Refused(STRICT) if request.limits.strict and plan.changes else None


def _doubt_of(
    result: Plan | NoPlan, search: Callable[..., Plan | NoPlan], fixed: Mapping[Setting, Value]
) -> Doubt | None:
    """The doubt about a change or refusal for memory; None if it is certain.

    It is certain if an attempt has run out of memory, or if it stays the same with all assumptions
    at their lightest values. The doubt names the facts that each alone could undo the decision,
    else the fewest facts that could together. Arguments that weren't understood could undo anything
    until a worker has reported the resulting model.

    Plans with `search`, like the original. The lightest values of `fixed` settings, which can't
    change any more, are tried anyway if they are merely assumed.
    """
    workload = result.workload
    names = _uncertain(workload)
    missing = _missing(result)
    changed = result.changed_for_memory if isinstance(result, Plan) else ()
    is_ruled = bool(changed) or (isinstance(result, NoPlan) and result.is_for_memory)
    if workload.measured or not (names or missing) or not is_ruled:
        return None

    def fits(lighter: Sequence[Name]) -> bool:
        # DeepSpeed's buckets outweigh a tiny model, which may be lighter without.
        kept = [name for name in lighter if name is not Fact.ENGINE]
        return fits_as(lighter) or (len(kept) < len(lighter) and fits_as(kept))

    def fits_as(lighter: Sequence[Name]) -> bool:
        supposedly = _lightened(workload, lighter)
        before, after = workload.requested, supposedly.requested
        held = {name: value for name, value in fixed.items() if after.get(name) == before.get(name)}
        other = search(result.request, supposedly, result.hardware, fixed=held)
        return isinstance(other, Plan) and (
            isinstance(result, NoPlan) or not other.changed_for_memory
        )

    if not names or not fits(names):
        return Doubt(changed, missing) if missing else None
    needed = [name for name in names if fits([name])]
    if not needed:
        needed = names
        for name in names:
            fewer = [other for other in needed if other is not name]
            needed = fewer if fits(fewer) else needed
    return Doubt(changed, (*missing, *(_text(workload, name) for name in needed)))


def _missing(result: Plan | NoPlan) -> tuple[str, ...]:
    """Unknown things without a fact that could undo the decision, in words."""
    workload, hardware = result.workload, result.hardware
    device, spread = hardware.accelerator, workload.known.get(Fact.DEVICE_MAP)
    vague = () if _is_seen(workload) else workload.not_understood
    several = hardware.accelerators > 1
    version = workload.known.get(Fact.FSDP_VERSION)
    is_guess = workload.engine is Engine.FSDP and not workload.is_certain(Fact.FSDP_VERSION)
    return (
        *(f"{argument} (not understood)" for argument in vague),
        *(() if device.sized else (f"the memory of {device.name} (not known)",)),
        *((f"the devices of a worker ({spread.source})",) if spread and several else ()),
        *((f"FSDP's version ({version.source})",) if version and is_guess else ()),
    )


def _uncertain(workload: Workload) -> list[Name]:
    """The assumptions an estimate depends on."""
    has_tower = workload.model is not None and workload.model.vision is not None
    is_whole = workload.is_certain(Fact.ADAPTER) and workload.value(Fact.ADAPTER) == Adapter.NONE
    engine = workload.engine if workload.is_certain(Fact.ENGINE) else None
    pointless: set[Name] = {
        *((Fact.ENGINE, Setting.ZERO_STAGE) if engine is Engine.FSDP else ()),
        *(() if engine is Engine.FSDP else OF_FSDP),
        *(IN_THE_MODEL if _is_seen(workload) else ()),
        *(OF_ADAPTERS if is_whole else ()),
        *(() if has_tower else TOWERS),
        *(OF_DEEPSPEED if engine is Engine.DDP else ()),
        *({Fact.OUTPUT} - workload.known.keys()),
    }
    is_limit = Fact.SEQUENCE_LENGTH in workload.known and not workload.is_length_stated
    return [
        *(name for name in LIGHTEST if name not in pointless and not workload.is_certain(name)),
        *((Fact.SEQUENCE_LENGTH,) if is_limit else ()),
    ]


def _is_seen(workload: Workload) -> bool:
    """Whether a worker has reported its model."""
    seen = workload.known.get(Fact.ADAPTER)
    return seen is not None and seen.origin.certainty >= Certainty.OBSERVED


def _lightened(workload: Workload, names: Iterable[Name]) -> Workload:
    """The workload with these names at their lightest values."""
    for name in names:
        if name in LIGHTEST:
            workload = supposed(workload, name, LIGHTEST[name])
        else:  # without a length, tokens aren't counted
            workload = workload.without([name])
    return workload


def _text(workload: Workload, name: Name) -> str:
    hint = Fact.ADAPTER_HINTED if name is Fact.ADAPTER else name
    known = workload.known.get(name) or workload.known.get(hint)
    return f"{name.value} ({'not stated' if known is None else known.source})"
