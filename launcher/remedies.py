"""What would make a run fit that doesn't, or keep what was asked: each with its computed number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from .budget import capacity, gib
from .constraint import CauseKind, Constraint
from .machine import Hardware
from .memory import job_for
from .plan import Considered, NoPlan, Plan
from .request import LaunchRequest
from .resolve import Rules, candidates, judged, resolve, rules_of
from .settings import Adapter, Fact, Loss, Name, Origin, Value
from .states import optimizer_of
from .workload import Known, Workload

MOST_NODES = 64
"""Times as many devices as asked for that are tried at most."""
SHORTEST = 512
"""Tokens below which shorter sequences aren't proposed."""


def supposed(workload: Workload, name: Name, value: Value) -> Workload:
    """The workload as if it had a value; what was read is kept beside."""
    known = {**workload.known, name: Known(value, Origin.LESSON, "supposed")}
    return replace(workload, known=MappingProxyType(known))


def remedies(refused: NoPlan, rules: Rules) -> tuple[str, ...]:
    """Single changes by which something fits, where memory is what refuses; the nearest first."""
    if not any(one.is_forbidden_by_memory for one in refused.rejected):
        return ()
    workload, world = refused.workload, rules.world
    found = [*_devices(workload, rules), *_adapters(workload, rules), *_sequences(workload, rules)]
    if optimizer_of(workload).value == "adamw":
        smaller = supposed(workload, Fact.OPTIMIZER, "adamw_8bit")
        if (one := smallest(smaller, rules)) is not None and one.constraint is None:
            found.append(f"an 8-bit optimizer: {_need(one)}")
    usable = gib(capacity(rules.hardware, world))
    nothing = f"no single change brings it below {usable} GiB a rank: combine several"
    return tuple(found) or (nothing,)


def smallest(workload: Workload, rules: Rules) -> Considered | None:
    """The candidate that needs the least, of those that only memory may forbid."""
    job = job_for(workload, rules.hardware, rules.world)
    if job is None:
        return None
    every = [judged(one, workload, rules, job) for one in candidates(workload)]
    able = [one for one in every if one.constraint is None or one.is_forbidden_by_memory]
    fitting = [one for one in able if one.constraint is None]
    return min(
        fitting or able,
        key=lambda one: one.estimate.bound if one.estimate else 0,
        default=None,
    )


def _need(one: Considered) -> str:
    assert one.estimate is not None, "only a known model is judged by memory"
    text = f"{gib(one.estimate.bound)} GiB a rank with {one.preset}"
    return f"{text}; {gib(one.estimate.host)} GiB of host memory" if one.estimate.host else text


def _devices(workload: Workload, rules: Rules) -> Iterator[str]:
    """The least multiple of the devices that is enough."""
    times = 2
    while times <= MOST_NODES:
        more = replace(rules, world=rules.world * times)
        one = smallest(workload, more)
        if one is not None and one.constraint is None:
            yield f"{more.world} x {rules.hardware.accelerator.name}: {_need(one)}"
            return
        times *= 2


def _adapters(workload: Workload, rules: Rules) -> Iterator[str]:
    if workload.value(Fact.ADAPTER) == Adapter.LORA:
        return
    adapted = supposed(workload, Fact.ADAPTER, Adapter.LORA.value)
    adapted = supposed(adapted, Fact.LORA_TARGETS, "all-linear")
    for text, variant in (
        ("LoRA on all linear layers", adapted),
        ("LoRA on 4-bit weights", supposed(adapted, Fact.QUANTIZATION_BITS, 4)),
    ):
        one = smallest(variant, rules)
        if one is not None and one.constraint is None:
            yield f"{text}: {_need(one)}"
            return


def _sequences(workload: Workload, rules: Rules) -> Iterator[str]:
    length = workload.value(Fact.SEQUENCE_LENGTH)
    shorter = int(length) // 2 if length is not None else 0
    while shorter >= SHORTEST:
        one = smallest(supposed(workload, Fact.SEQUENCE_LENGTH, shorter), rules)
        if one is not None and one.constraint is None:
            yield f"sequences of {shorter} tokens: {_need(one)}"
            return
        shorter //= 2


def proposals(plan: Plan, rules: Rules) -> tuple[str, ...]:
    """What costs nearly nothing and would keep what was asked, where memory changed it."""
    traded = [one for one in plan.changes if one.constraint.cause.kind is CauseKind.MEMORY]
    workload = plan.workload
    unknown = workload.value(Fact.SEQUENCE_LENGTH) is None
    if not traded or unknown or workload.value(Fact.LOSS) not in (None, Loss.CROSS_ENTROPY):
        return ()
    if workload.model is None or not workload.model.vocabulary:
        return ()
    asked = workload.asked
    before = judged(asked, workload, rules, job_for(workload, rules.hardware, rules.world))
    kind = Loss.CHUNKED if rules.hardware.accelerator.kind == "npu" else Loss.FUSED
    with_loss = supposed(workload, Fact.LOSS, kind.value)
    after = judged(asked, with_loss, rules, job_for(with_loss, rules.hardware, rules.world))
    if before.estimate is None or after.estimate is None:
        return ()
    saved = before.estimate.bound - after.estimate.bound
    if saved < 2**28:
        return ()
    how = {
        Loss.FUSED: "a fused loss (use_liger_kernel, where liger-kernel is installed)",
        Loss.CHUNKED: "a chunked loss (logits of a part of the tokens at a time)",
    }[kind]
    fits = after.constraint is None
    end = ", and what was asked would fit" if fits else ", which alone isn't enough"
    return (f"{how} takes {gib(saved)} GiB less at nearly no cost{end}",)


def planned(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    constraints: Sequence[Constraint],
) -> Plan | NoPlan:
    """The plan with what could be proposed, or that there is none with what would make one."""
    found = resolve(request, workload, hardware, constraints)
    rules = rules_of(request, hardware, constraints)
    if isinstance(found, NoPlan):
        return replace(found, remedies=remedies(found, rules))
    return replace(found, proposals=proposals(found, rules))
