"""Chooses the next step after a failure from the first rule that applies, or else how to search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ...catalogue.entry import KnownFailure, Role
from ...evidence.failure_record import FailureRecord
from .attention import no_operator
from .bare_assertion import bare_assertion
from .build import build, isolated_build
from .complaints import users_report
from .configuration import configuration, misspelt_option
from .cut_off import cut_off
from .data_files import damaged_file, runtimes_check
from .fallback import fallback
from .guarded_call import guarded_call
from .imported_from import own_module, shadowed
from .installation import absent_package, compiled_part, missing_library, other_name, twins
from .instruction import instruction
from .interpreters import other_interpreter
from .io_errors import connection_lost, http_error, storage_error, system_error
from .logged_reason import failed_command, logged_reason
from .memory import one_device, out_of_memory
from .misfit import misfit
from .native import native
from .optional_parts import optional_part, switch
from .ports import taken_port
from .ranks import (
    busy_rank,
    many_launchers,
    other_modules,
    race_on_files,
    replicas_in_threads,
    shared_cache,
    unequal_replicas,
)
from .requirement import refused_itself, refused_value, requirement
from .script_line import called_line, script_line
from .sharded_model import bare_model, bypassed_engine, mixed_dtypes, sharded
from .step import Case, Step, case_of
from .surroundings import (
    driver_call,
    hidden_devices,
    local_address,
    other_nodes_disk,
    service_mesh,
    unfinished_checkpoint,
)
from .without_exception import (
    ended_silently,
    no_step,
    nothing_learned,
    stopped_early,
)
from .worked_before import worked_before

Rule = Callable[[Case], Step | None]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "ended-silently": ended_silently,
        "no-step": no_step,
        "nothing-learned": nothing_learned,
        "stopped-early": stopped_early,
        "worked-before": worked_before,
        "switch": switch,
        "mixed-dtypes": mixed_dtypes,
        "cut-off": cut_off,
        "told": users_report,
        "isolated-build": isolated_build,
        "build": build,
        "one-device": one_device,
        "out-of-memory": out_of_memory,
        "shared-cache": shared_cache,
        "race-on-files": race_on_files,
        "unfinished-checkpoint": unfinished_checkpoint,
        "other-nodes-disk": other_nodes_disk,
        "hidden-devices": hidden_devices,
        "many-launchers": many_launchers,
        "own-module": own_module,
        "shadowed": shadowed,
        "driver-call": driver_call,
        "service-mesh": service_mesh,
        "own-address": local_address,
        "guarded-call": guarded_call,
        "busy-rank": busy_rank,
        "bare-model": bare_model,
        "bypassed-engine": bypassed_engine,
        "other-modules": other_modules,
        "unequal-replicas": unequal_replicas,
        "replicas-in-threads": replicas_in_threads,
        "native": native,
        "taken-port": taken_port,
        "damaged-file": damaged_file,
        "runtimes-check": runtimes_check,
        "system-error": system_error,
        "storage-error": storage_error,
        "http-error": http_error,
        "connection-lost": connection_lost,
        "twins": twins,
        "misspelt-option": misspelt_option,
        "configuration": configuration,
        "refused-itself": refused_itself,
        "missing-library": missing_library,
        "no-operator": no_operator,
        "instruction": instruction,
        "refused-value": refused_value,
        "other-interpreter": other_interpreter,
        "other-name": other_name,
        "compiled-part": compiled_part,
        "absent-package": absent_package,
        "misfit": misfit,
        "sharded": sharded,
        "logged-reason": logged_reason,
        "failed-command": failed_command,
        "own-line": script_line,
        "called-line": called_line,
        "bare-assertion": bare_assertion,
        "requirement": requirement,
        "optional-part": optional_part,
    }
)
"""The rules, most certain first; a rule returns None if it doesn't apply."""

PLAINER = ("build", "instruction", "refused-value")
"""Rules more specific than what a general entry advises if none of its variants applies."""
SURER: tuple[str, ...] = (
    *("isolated-build", "shared-cache", "race-on-files", "unfinished-checkpoint"),
    *("other-nodes-disk", "service-mesh", "guarded-call", "busy-rank", "other-interpreter"),
    *("replicas-in-threads", "own-module", "taken-port", "other-name"),
)
"""Rules more specific than general entries, or entries about a waiting rank."""
SUREST: tuple[str, ...] = (
    *("other-modules", "refused-itself", "own-address", "hidden-devices", "bare-model", "switch"),
    *("many-launchers", "shadowed", "one-device", "no-operator", "misspelt-option"),
    "unequal-replicas",
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
