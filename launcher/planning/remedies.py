"""Remedies that make a run fit, or keep the request, each with its computed number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from ..core.choices import Adapter, Engine, Framework, Loss, Offload, Optimizer
from ..core.errors import LaunchError
from ..core.quantities import count_of
from ..core.settings import OF_DDP, OF_FSDP, Fact, Name, Setting, Value
from ..core.workload import Known, Origin, Workload
from .budget import capacity, gib
from .estimates.training_states import optimizer_of
from .named_presets import with_wanted
from .plan import Considered, NoPlan, Plan
from .search import Rules, evaluate_candidate, resolve

MULTIPLES = (2, 4, 8, 16, 32, 64)
"""Multiples of the requested devices to try."""
OF_ENGINES = (*OF_DDP, *OF_FSDP, Fact.FSDP_VERSION, Fact.FSDP_UNITS, Fact.MASTER_PRECISION)
"""Settings unique to DDP or FSDP."""
SHORTEST = 512
"""Minimum sequence length to propose, in tokens."""


def supposed(workload: Workload, name: Name, value: Value) -> Workload:
    """The workload with one assumed value."""
    known = {**workload.known, name: Known(value, Origin.LESSON, "supposed")}
    return replace(workload, known=MappingProxyType(known))


def remedies(refused: NoPlan, rules: Rules) -> tuple[str, ...]:
    """Single changes that make a candidate fit if memory forbids all; nearest first."""
    if not refused.is_for_memory:
        return ()
    ways = (_deepspeed, _fsdp, _optimizers, _sequences, _adapters, _devices)
    changes = [change for way in ways for change in way(refused, rules)]
    limits = [measured.limit for measured in refused.workload.measured]
    usable = gib(min([capacity(rules.hardware, rules.ranks), *limits]))
    nothing = f"no single change brings it below {usable} GiB a rank; combine several"
    return tuple(changes) or (nothing,)


def best(refused: NoPlan, workload: Workload, rules: Rules, times: int = 1) -> Considered | None:
    """The candidate for `times` as many devices, if any fits."""
    more = tuple(workers * times for workers in refused.request.nodes)
    request = replace(refused.request, workers=more)
    plan = resolve(
        request, workload, rules.hardware, rules.constraints, has_failed=rules.has_failed
    )
    return plan.chosen if isinstance(plan, Plan) and plan.chosen.constraint is None else None


def _need(candidate: Considered) -> str:
    assert candidate.estimate is not None, "only a known model is evaluated by memory"
    bound, host = candidate.estimate.bound, candidate.estimate.host
    text = f"{gib(bound)} GiB a rank with {candidate.preset}"
    return f"{text}; {gib(host)} GiB of host memory" if host else text


def _deepspeed(refused: NoPlan, rules: Rules) -> Iterator[str]:
    """Proposes ZeRO for a script on the Trainer with DDP or FSDP.

    The user must remove an FSDP configuration first: the two refuse each other.
    """
    workload = refused.workload
    switchable = workload.framework is Framework.TRANSFORMERS and "deepspeed" in workload.versions
    if workload.engine not in (Engine.DDP, Engine.FSDP) or not switchable:
        return
    variant = workload.without(OF_ENGINES)
    variant = supposed(variant, Fact.ENGINE, Engine.DEEPSPEED.value)
    variant = supposed(variant, Setting.OFFLOAD, Offload.NONE.value)
    if fit := best(refused, supposed(variant, Setting.ZERO_STAGE, 2), rules):
        instead = " instead of FSDP" if workload.engine is Engine.FSDP else ""
        yield f"--preset zero{fit.preset.zero_stage}{instead}: {_need(fit)}"


def _fsdp(refused: NoPlan, rules: Rules) -> Iterator[str]:
    """Proposes FSDP2 if ZeRO would fit but isn't installed."""
    workload = refused.workload
    is_plain = workload.framework is Framework.TRANSFORMERS and workload.engine is Engine.DDP
    if not is_plain or "deepspeed" in workload.versions or not rules.hardware.accelerator.memory:
        return
    wanted = {Setting.RESHARD_AFTER_FORWARD: Known(True, Origin.FLAG, "--preset")}
    with suppress(LaunchError):  # an accelerate or a torch without it
        if fit := best(refused, with_wanted(workload, wanted), rules):
            yield f"--preset fsdp2: {_need(fit)}"


def _devices(refused: NoPlan, rules: Rules) -> Iterator[str]:
    """Proposes the smallest sufficient multiple of the devices."""
    for times in MULTIPLES:
        if fit := best(refused, refused.workload, rules, times):
            yield f"{rules.ranks.world * times} x {rules.hardware.accelerator.name}: {_need(fit)}"
            return


def _adapters(refused: NoPlan, rules: Rules) -> Iterator[str]:
    workload = refused.workload
    if workload.value(Fact.ADAPTER) == Adapter.LORA:
        return
    adapted = supposed(workload, Fact.ADAPTER, Adapter.LORA.value)
    adapted = supposed(adapted, Fact.LORA_TARGETS, "all-linear")
    for text, variant in (
        ("LoRA on all linear layers", adapted),
        ("LoRA on 4-bit weights", supposed(adapted, Fact.QUANTIZATION_BITS, 4)),
    ):
        if fit := best(refused, variant, rules):
            yield f"{text}: {_need(fit)}"
            return


def _sequences(refused: NoPlan, rules: Rules) -> Iterator[str]:
    length = refused.workload.value(Fact.SEQUENCE_LENGTH)
    shorter = int(length) // 2 if length is not None else 0
    while shorter >= SHORTEST:
        if fit := best(refused, supposed(refused.workload, Fact.SEQUENCE_LENGTH, shorter), rules):
            yield f"sequences of {count_of(shorter, 'token')}: {_need(fit)}"
            return
        shorter //= 2


def _optimizers(refused: NoPlan, rules: Rules) -> Iterator[str]:
    if optimizer_of(refused.workload) is not Optimizer.ADAMW:
        return
    smaller = supposed(refused.workload, Fact.OPTIMIZER, Optimizer.ADAMW_8BIT.value)
    fit = best(refused, smaller, rules)
    # bitsandbytes' optimizers have no implementation for the CPU.
    if fit is not None and fit.preset.offload in (None, Offload.NONE):
        yield f"an 8-bit optimizer: {_need(fit)}"


def proposals(plan: Plan, rules: Rules) -> tuple[str, ...]:
    """Almost free changes that would keep the request, if memory changed it."""
    workload = plan.workload
    if not plan.changed_for_memory or workload.value(Fact.SEQUENCE_LENGTH) is None:
        return ()
    if workload.value(Fact.LOSS) not in (None, Loss.CROSS_ENTROPY):
        return ()
    if workload.model is None or not workload.model.vocabulary:
        return ()
    requested = workload.requested
    before = evaluate_candidate(requested, workload, rules)
    kind = Loss.CHUNKED if rules.hardware.accelerator.kind == "npu" else Loss.FUSED
    with_loss = supposed(workload, Fact.LOSS, kind.value)
    after = evaluate_candidate(requested, with_loss, rules)
    if before.estimate is None or after.estimate is None:
        return ()
    saved = before.estimate.peak.needed - after.estimate.peak.needed
    if saved < 2**28:
        return ()
    how = {
        Loss.FUSED: "a fused loss (use_liger_kernel, if liger-kernel is installed)",
        Loss.CHUNKED: "a chunked loss (logits of a part of the tokens at a time)",
    }[kind]
    alone = after.constraint is not None
    end = ", which alone isn't enough" if alone else ", and the requested settings would fit"
    return (f"{how} takes {gib(saved)} GiB less at almost no cost{end}",)
