"""Converts workers' reports to statements on the workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.choices import Adapter
from ..core.errors import LaunchError
from ..core.settings import Fact, Name, Setting, Value, name_of, parse_value
from ..core.workload import Known, Origin, Statement, Workload
from ..workload.models.from_config import model_from_config, weights_of
from ..workload.readers.peft_flags import is_end
from .attempt import Attempt, Seen


def observed_statements(attempt: Attempt, observed: Mapping[str, Value]) -> tuple[Statement, ...]:
    """Converts a worker's observations to statements on the workload.

    Leaves out settings that the plan overrides, whose value isn't the script's, and the length of
    the first batch if a longer maximum is stated.
    """
    longest = attempt.plan.workload.value(Fact.SEQUENCE_LENGTH)
    is_stated = attempt.plan.workload.is_length_stated
    kept = {
        name: value
        for name, value in ((name_of(raw), value) for raw, value in observed.items())
        if not (isinstance(name, Setting) and name in attempt.plan.overrides)
        and not (name is Fact.SEQUENCE_LENGTH and is_stated and int(value) <= int(longest or 0))
    }
    seen = f"the script, as seen in attempt {attempt.number + 1}"
    return statements(attempt.plan.workload, kept, seen)


def statements(
    workload: Workload, seen: Mapping[Name, Value], source: str
) -> tuple[Statement, ...]:
    """Converts workers' reports to statements."""
    return tuple(
        (
            name,
            Known(
                parse_value(name, value), Origin.OBSERVED, _source(workload, name, value) or source
            ),
        )
        for name, value in seen.items()
    )


def _source(workload: Workload, name: Name, value: Value) -> str:
    """The known place of an observed value; empty if none."""
    known = workload.known.get(name)
    return known.source if known is not None and known.value == value else ""


def tried_settings(attempt: Attempt, workload: Workload) -> dict[Setting, Value]:
    """The attempt's settings in force, if known."""
    return {**workload.requested, **attempt.plan.overrides}


def with_seen(workload: Workload, attempt: Attempt, seen: Seen) -> Workload:
    """Adds workers' reports to the workload; a reported model replaces the files' model."""
    informed = workload.informed((*seen.asked, *observed_statements(attempt, seen.observed)))
    informed = replace(informed, framework=seen.framework or informed.framework)
    if seen.model is None:
        return informed
    source = f"the model as seen in attempt {attempt.number + 1}"
    return with_model(informed, seen.model, source, Origin.OBSERVED)


def with_model(
    workload: Workload, seen: Mapping[str, Any], source: str, origin: Origin
) -> Workload:
    """Adds a model described by a worker, if its configuration is understood."""
    if not seen.get("config"):
        return workload
    weights = weights_of(seen)
    try:
        model = model_from_config(seen["config"], weights, source)
    except LaunchError:  # only the model's code understands this configuration
        return workload
    if model is None:
        return workload
    has_adapters = any(".lora_" in weight.name for weight in weights)
    adapter = Adapter.LORA if has_adapters else Adapter.NONE
    statements: list[Statement] = [(Fact.ADAPTER, Known(adapter.value, origin, source))]
    saved = (weight.name.partition(".modules_to_save.") for weight in weights)
    # A copied embedding or output doesn't show whether it was tied.
    is_tied = seen["config"].get("tie_word_embeddings") is True
    if is_tied and any(copy and is_end(module) for module, copy, _ in saved):
        statements.append((Fact.TIED_SAVED, Known(True, origin, source)))
    return replace(workload.informed(statements), model=model)
