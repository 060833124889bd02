"""What an attempt taught, in the workload's terms: what was seen, and what a failure proves."""

from __future__ import annotations

from dataclasses import replace

from ..catalogue.entry import Finding, Kind
from ..core.constraint import Cause, CauseKind, Constraint, Term
from ..core.errors import LaunchError
from ..core.model import Weight
from ..core.settings import Adapter, Fact, Offload, Origin, Setting
from ..core.workload import Known, Workload
from ..planning.estimates.model_sizes import job_of
from ..planning.search import Rules, judged_for
from ..workload.models.from_config import model_from_config
from .allocator_message import is_of_host
from .attempt import Attempt, Seen
from .memory_calibration import measured_of
from .root_cause import is_about, learn, observed_statements, tried_settings

NOT_MODELLED = "the memory of FSDP, and of tensor, pipeline or sequence parallelism, isn't modelled"


def with_seen(workload: Workload, attempt: Attempt, seen: Seen) -> Workload:
    """The workload with what the workers reported; the model as it was seen replaces the files'."""
    informed = workload.informed(observed_statements(attempt, seen.observed))
    if seen.model is None or not seen.model.get("config"):
        return informed
    weights = tuple(
        Weight(str(name), tuple(shape), count, trained, bits)
        for name, shape, trained, bits, count in seen.model["weights"]
    )
    source = f"the model as seen in attempt {attempt.number + 1}"
    try:
        model = model_from_config(seen.model["config"], weights, source)
    except LaunchError:  # a configuration that only the model itself understands
        return informed
    if model is None:
        return informed
    has_adapters = any(".lora_" in weight.name for weight in weights)
    adapter = Adapter.LORA if has_adapters else Adapter.NONE
    statement = (Fact.ADAPTER, Known(adapter.value, Origin.OBSERVED, source))
    return replace(informed.informed([statement]), model=model)


def is_hopeless(attempt: Attempt, workload: Workload, rules: Rules) -> bool:
    """Whether the attempt is known to fail in the light of what is known now.

    Memory ends a running attempt only where what is expected does not fit; that the bound does not
    fit is a reason not to start, not a reason to stop.
    """
    one = judged_for(tried_settings(attempt, workload), workload, rules)
    return one.constraint is not None and not one.is_tight


def learnt_from(
    workload: Workload, attempt: Attempt, seen: Seen, root: Finding, rules: Rules
) -> tuple[Workload, Rules] | str:
    """What is known after an explained failure, and the rules with its lesson.

    Where nothing follows, from a lack of memory or for this engine, the reason in words.
    """
    now = with_seen(workload, attempt, seen)
    assert root.entry is not None, "only an explained failure teaches"
    if root.entry.kind is Kind.MEMORY:
        if is_of_host(root.record) and rules.hardware.accelerator.memory:
            return _less_in_host_memory(now, attempt, rules)
        if job_of(now) is None:
            why = "the model's shape isn't known" if now.model is None else NOT_MODELLED
            return f"{why}, so no smaller plan can be computed"
        now = now.informed(observed_statements(attempt, root.record.observed))
        measured = measured_of(attempt, root.record, now, rules.hardware)
        now = replace(now, measured=(*now.measured, measured))
    elif not is_about(root.entry, now.informed(observed_statements(attempt, root.record.observed))):
        return "the settings that are known to cure it are for another engine than this run's"
    lesson = learn(attempt, root, rules, now)
    now = now.informed(lesson.statements)
    if lesson.constraint is None:
        return now, rules
    return now, replace(rules, constraints=(*rules.constraints, lesson.constraint))


def _less_in_host_memory(
    workload: Workload, attempt: Attempt, rules: Rules
) -> tuple[Workload, Rules] | str:
    """The lesson where a host with accelerators ran out of memory: what lay there can't.

    Nothing tells how much of the host's memory was the offload's and how much the data loaders', so
    nothing is calibrated.
    """
    tried = tried_settings(attempt, workload).get(Setting.OFFLOAD, Offload.NONE.value)
    if tried == Offload.NONE:
        return "no setting keeps less in host memory: ask for more, or load with fewer processes"
    places = list(Offload)
    heavier = frozenset(str(one.value) for one in places[places.index(Offload(str(tried))) :])
    number = str(attempt.number + 1)
    summary = f"attempt {number} ran out of host memory with it"
    terms = (Term(Setting.OFFLOAD, heavier),)
    constraint = Constraint(terms, Cause(CauseKind.ATTEMPT, number, summary))
    return workload, replace(rules, constraints=(*rules.constraints, constraint))
