"""Chooses the next step after a failure from the first rule that applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ...catalogue.entry import KnownFailure, Role
from ...evidence.failure_record import FailureRecord
from .bare_model import bare_model
from .build import build, isolated_build
from .busy_rank import busy_rank
from .configuration import configuration
from .ended_silently import ended_silently
from .fallback import fallback
from .http_errors import connection_lost, http_error, storage_error
from .instruction import instruction, refused_itself, refused_value, requirement
from .libraries import compiled_part, missing_library
from .local_address import local_address
from .memory import out_of_memory
from .misfit import misfit
from .mixed_dtypes import mixed_dtypes
from .native import native
from .no_step import no_step
from .nothing_learned import nothing_learned
from .other_interpreter import other_interpreter
from .ranks import other_modules, race_on_files, replicas_in_threads, sharded, shared_cache
from .script_line import called_line, script_line
from .step import Case, Step, case_of
from .surroundings import (
    driver_call,
    hidden_devices,
    other_nodes_disk,
    service_mesh,
    unfinished_checkpoint,
)
from .system_words import system_error
from .twins import twins
from .users_report import users_report

Rule = Callable[[Case], Step | None]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "ended-silently": ended_silently,
        "no-step": no_step,
        "nothing-learned": nothing_learned,
        "told": users_report,
        "isolated-build": isolated_build,
        "build": build,
        "out-of-memory": out_of_memory,
        "shared-cache": shared_cache,
        "race-on-files": race_on_files,
        "unfinished-checkpoint": unfinished_checkpoint,
        "other-nodes-disk": other_nodes_disk,
        "hidden-devices": hidden_devices,
        "driver-call": driver_call,
        "service-mesh": service_mesh,
        "own-address": local_address,
        "busy-rank": busy_rank,
        "bare-model": bare_model,
        "mixed-dtypes": mixed_dtypes,
        "other-modules": other_modules,
        "replicas-in-threads": replicas_in_threads,
        "native": native,
        "system-error": system_error,
        "storage-error": storage_error,
        "http-error": http_error,
        "connection-lost": connection_lost,
        "twins": twins,
        "configuration": configuration,
        "refused-itself": refused_itself,
        "missing-library": missing_library,
        "instruction": instruction,
        "refused-value": refused_value,
        "other-interpreter": other_interpreter,
        "compiled-part": compiled_part,
        "misfit": misfit,
        "sharded": sharded,
        "own-line": script_line,
        "called-line": called_line,
        "requirement": requirement,
    }
)
"""The rules, most certain first; a rule returns None if it doesn't apply."""

PLAINER = ("build", "instruction", "refused-value")
"""Rules more specific than what a general entry advises if none of its variants applies."""
SURER: tuple[str, ...] = (
    *("isolated-build", "shared-cache", "race-on-files", "unfinished-checkpoint"),
    *("other-nodes-disk", "service-mesh", "busy-rank", "other-interpreter", "replicas-in-threads"),
)
"""Rules more specific than general entries, or entries about a waiting rank."""
SUREST: tuple[str, ...] = (
    *("other-modules", "refused-itself", "own-address", "hidden-devices", "bare-model"),
)
"""Rules more specific than any entry."""


def surer_step(entry: KnownFailure, record: FailureRecord) -> Step | None:
    """The step of a rule more specific than the matching entry, if any."""
    names = SUREST
    if entry.is_general or entry.role is Role.CASCADE:
        names += SURER
    if entry.is_general and all(variant.advice(record) is None for variant in entry.variants):
        names += PLAINER
    case = case_of(record)
    steps = ((name, RULES[name](case)) for name in names)
    return next((replace(step, rule=name) for name, step in steps if step is not None), None)


def next_step(record: FailureRecord) -> Step:
    """The next step for a failure without an entry."""
    case = case_of(record)
    for name, rule in RULES.items():
        if (step := rule(case)) is not None:
            return replace(step, rule=name)
    return replace(fallback(case), rule="fallback")
