"""The unstated facts that a memory estimate depends on.

An estimate may refuse a training only if it would do so for any values of those facts: whatever no
argument, file or worker states is assumed to be as light as it can be. If something mentions
adapters in a form that no reader understands, the estimate may not change anything either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..core.constraint import CauseKind, Constraint
from ..core.settings import (
    Adapter,
    Attention,
    Checkpointing,
    Engine,
    Fact,
    Loss,
    Name,
    Offload,
    Optimizer,
    Origin,
    Precision,
    Setting,
    Value,
)
from ..core.workload import Workload
from .plan import NoPlan, Plan
from .remedies import supposed
from .search import resolve

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
        Fact.LOSS: Loss.FUSED.value,
        Fact.LENGTHS_VARY: False,
        Fact.EXPANDABLE_SEGMENTS: True,
        Fact.ENGINE: Engine.DEEPSPEED.value,
        Setting.ZERO_STAGE: 3,
        Setting.OFFLOAD: Offload.OPTIMIZER_AND_PARAMETERS.value,
        Setting.GRADIENT_CHECKPOINTING: Checkpointing.NON_REENTRANT.value,
        Setting.MICRO_BATCH: 1,
        Setting.PRECISION: Precision.BF16.value,
        Fact.LOADED_PRECISION: Precision.BF16.value,
    }
)
"""For each fact and setting that an estimate depends on, the value that takes least memory."""
IN_THE_MODEL = (
    Fact.ADAPTER,
    Fact.LORA_RANK,
    Fact.QUANTIZATION_BITS,
    Fact.LANGUAGE_TRAINED,
    Fact.VISION_TRAINED,
)
"""Facts that a worker reports as soon as it has made the model."""
OF_ADAPTERS = (Fact.LORA_RANK, Fact.QUANTIZATION_BITS)
"""A model without adapters can't be trained in fewer bits."""
TOWERS = (Fact.LANGUAGE_TRAINED, Fact.VISION_TRAINED)
OF_DEEPSPEED = (Setting.ZERO_STAGE, Setting.OFFLOAD)


def doubts(found: Plan | NoPlan, constraints: Sequence[Constraint]) -> tuple[str, ...]:
    """The unstated values that a refusal or change for memory depends on, as phrases.

    Empty where it is certain: an attempt has run out of memory, or it would be the same if all
    unstated values were as light as they can be. Otherwise names the values each of which alone
    could undo it, or else a smallest set that could together.

    Args:
        found: the plan, or why there is none.
        constraints: the constraints other than memory.
    """
    workload = found.workload
    names = unstated(workload)
    if isinstance(found, Plan):
        is_hinted = Fact.ADAPTER in names and workload.value(Fact.ADAPTER_HINTED)
        names = [name for name in names if name in IN_THE_MODEL] if is_hinted else []
    if workload.measured or not names or not _is_ruled_by_memory(found):
        return ()

    def fits(lighter: Iterable[Name]) -> bool:
        supposedly = _lightened(workload, lighter)
        other = resolve(found.request, supposedly, found.hardware, constraints)
        return isinstance(other, Plan) and (isinstance(found, NoPlan) or not other.changes)

    if not fits(names):
        return ()
    needed = [name for name in names if fits([name])]
    if not needed:
        needed = names
        for name in names:
            fewer = [other for other in needed if other is not name]
            needed = fewer if fits(fewer) else needed
    return tuple(_text(workload, name) for name in needed)


def _is_ruled_by_memory(found: Plan | NoPlan) -> bool:
    """Whether memory is the reason for a change, or for having no plan."""
    if isinstance(found, NoPlan):
        return any(candidate.is_forbidden_by_memory for candidate in found.rejected)
    return any(change.constraint.cause.kind is CauseKind.MEMORY for change in found.changes)


def unstated(workload: Workload) -> list[Name]:
    """Facts and settings that an estimate depends on and no argument, file or worker states."""
    seen = workload.known.get(Fact.ADAPTER)
    is_seen = seen is not None and seen.origin >= Origin.OBSERVED
    has_tower = workload.model is not None and workload.model.vision is not None
    is_whole = is_stated(workload, Fact.ADAPTER) and workload.value(Fact.ADAPTER) == Adapter.NONE
    is_plain = is_stated(workload, Fact.ENGINE) and workload.engine is Engine.DDP
    pointless: set[Name] = {
        *(IN_THE_MODEL if is_seen else ()),
        *(OF_ADAPTERS if is_whole else ()),
        *(() if has_tower else TOWERS),
        *(OF_DEEPSPEED if is_plain else ()),
        *({Fact.SEQUENCE_LENGTH} - workload.known.keys()),
    }
    return [
        name
        for name in (*LIGHTEST, Fact.SEQUENCE_LENGTH)
        if name not in pointless and not is_stated(workload, name)
    ]


def is_stated(workload: Workload, name: Name) -> bool:
    """Whether a value is stated; a default isn't, as the script's own arguments may differ."""
    known = workload.known.get(name)
    return name in workload.wanted or (known is not None and known.origin >= Origin.CONFIG)


def _lightened(workload: Workload, names: Iterable[Name]) -> Workload:
    """The workload with these facts and settings at their lightest values."""
    for name in names:
        if name in LIGHTEST:
            workload = supposed(workload, name, LIGHTEST[name])
        else:  # without a length, tokens aren't counted
            known = {other: value for other, value in workload.known.items() if other is not name}
            workload = replace(workload, known=MappingProxyType(known))
    return workload


def _text(workload: Workload, name: Name) -> str:
    hint = Fact.ADAPTER_HINTED if name is Fact.ADAPTER else name
    known = workload.known.get(name) or workload.known.get(hint)
    return f"{name.value} ({'not stated' if known is None else known.source})"
