"""Chooses the next step after a failure from the first rule that applies, or else how to search."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from ...catalogue.entry import KnownFailure, Role
from ...catalogue.package_names import (
    MODEL_CODE,
    PACKAGES,
    PYTHON,
    package_of_file,
    pip_name,
    project_of_file,
)
from ...catalogue.situation import Device
from ...catalogue.versions import versions_of
from ...evidence.failure_record import FailureRecord, Frame
from .attention import no_operator
from .build import build, isolated_build
from .complaints import users_report
from .configuration import configuration, misspelt_option
from .cut_off import cut_off
from .data_files import damaged_file, runtimes_check
from .guarded_call import guarded_call
from .imported_from import own_module, shadowed
from .installation import absent_package, compiled_part, missing_library, other_name, twins
from .instruction import FOR_DEVELOPERS, instruction, sentences
from .interpreters import other_interpreter
from .io_errors import connection_lost, http_error, storage_error, system_error
from .logged_reason import logged_reason
from .memory import one_device, out_of_memory
from .misfit import ARGUMENT, ATTRIBUTE, PLAIN, misfit
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
from .script_line import called_line, is_check, script_line
from .sharded_model import bare_model, mixed_dtypes, sharded
from .step import Basis, Case, Step, case_of, run_of
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

Rule = Callable[[Case], Step | None]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "ended-silently": ended_silently,
        "no-step": no_step,
        "nothing-learned": nothing_learned,
        "stopped-early": stopped_early,
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
        "mixed-dtypes": mixed_dtypes,
        "other-modules": other_modules,
        "unequal-replicas": unequal_replicas,
        "replicas-in-threads": replicas_in_threads,
        "native": native,
        "taken-port": taken_port,
        "switch": switch,
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
        "own-line": script_line,
        "called-line": called_line,
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
STEADY = {
    *(PYTHON, MODEL_CODE, "torch", "transformers", "accelerate", "deepspeed", "peft", "datasets"),
    *("lightning", "pytorch_lightning", "ray", "fire", "hydra", "requests", "urllib3"),
}
"""Packages on most call stacks, compatible in many versions."""
OF_VERSIONS = {
    *("AssertionError", "AttributeError", "KeyError", "NotImplementedError", "RuntimeError"),
    *("TypeError", "ValueError"),
}
"""Exceptions typical of incompatible package versions."""
OF_LOADING = {"AttributeError", "TypeError"}
"""Those of them that a release's fault with a kind of model raises as it is loaded."""
UNPACKED = re.compile(r"values to unpack|positional arguments?\b")
"""Numbers that two versions of an interface differ by, not values of a run."""
HANDS_ON = re.compile(r"\*args, \*\*\(?kw")
"""A line that only passes on its arguments."""
QUOTED = re.compile(r"(?<!\w)'([^']*)'|\"([^\"]*)\"|`([^`]*)`")
CUT = "\0"
"""Placeholder for a value in a message."""
WHAT = re.compile(r"\bwhat\(\): *(?P<said>[^\n]+)")
"""The text of a C++ exception, after the words that all of them have."""
VALUES = re.compile(
    rf"{CUT}|<[^<>]*>|\[[^\]]*\]|\([^()]*\d[^()]*\)|(?:[A-Za-z]:)?[\w.~-]*[/\\][\w./\\~-]+"
    r"|\b0x[0-9a-fA-F]+\b|-?\b\d[\w.,:]*\b|\b\w+=\S+|[{}:;]|[.!?](?=\s+[A-Z])"
)
"""Parts of a message specific to one run: paths, numbers, assignments, most quotations; and the
ends of sentences."""
FEWEST = 3
"""Minimum words of a fragment to search for."""
MOST = 12
"""Maximum words to search for."""
OF_ASCEND = re.compile(r"\bHccl|\bHCCL|\bacl[A-Zn]|\bE[RZ]R?\d{4,5}\b|\b[Nn][Pp][Uu]\b|\bCANN\b")
"""Words of Huawei's libraries."""
TOOLS = {
    Device.NPU: "`npu-smi info`",
    Device.ROCM: "`rocm-smi`",
    Device.XPU: "`xpu-smi discovery`",
    Device.CUDA: "`nvidia-smi`",
}
"""The command that shows a node's devices."""


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
    return replace(_fallback(case), rule="fallback")


def _fallback(case: Case) -> Step:
    """Names the origin, a search text, and attachments for a report."""
    package, callers, yours = _package(case), _frameworks(case), case.users_frame
    place = PACKAGES.get(package or "") or (project_of_file(yours.file) if yours else "")
    device = run_of(case).device
    if package in ("torch", None) and device is Device.NPU and OF_ASCEND.search(case.message):
        place = PACKAGES["torch_npu"]
    where = f" at https://github.com/{place}/issues" if place else ""
    led = f", called from {yours.file}:{yours.line}" if yours and package else ""
    owner = f"{_owner(case, package)}{led}"
    search = f"Search for {_search_text(case)}{where}: {owner[0].lower()}{owner[1:]}"
    if case.frame is not None and is_check(case):
        line = f"line {case.frame.line} of {case.frame.file}"
        search = f"Search for {_search_text(case)}{where}: the script checks it in {line}"
    shown = f"`pip freeze` and {TOOLS[device]} print" if device else "`pip freeze` prints"
    attach = f"In a question, give the rank's whole traceback, the command, and what {shown}"
    fit = ""
    is_of_values = case.kind != "AssertionError" and not UNPACKED.search(case.message)
    is_of_values = is_of_values and re.search(r"\d", case.message) is not None
    if len(callers) > 1 and case.kind in OF_VERSIONS and not is_of_values:
        named = f"{', '.join(callers[1:-1])}{' and ' if callers[2:] else ''}{callers[-1]}"
        fit = (
            f"Install {callers[0]} with the versions of {named} that its documentation or"
            " requirements name, if they aren't: the call went through all of them. "
        )
    elif not case.frames and _is_of_releases(case):
        framework = run_of(case).framework
        named = framework.name if framework else "the project"
        fit = (
            f"Compare the installed versions with those that {named} names in its"
            " requirements or README: mostly its code and a package are of different releases. "
        )
    elif package in PACKAGES and case.kind in OF_LOADING and any(map(is_loading, case.frames)):
        version = versions_of(case.record).get(package, "")
        before = f'the one before (`pip install "{pip_name(package)}<{version}"`)'
        fit = (
            f"This {package} may have a fault with this model: try"
            f" {before if version else 'the release before'}, or the newest. "
        )
    return Step(f"{fit}{search if case.message else owner}. {attach}.", Basis.OPEN)


def _is_of_releases(case: Case) -> bool:
    """Whether a message alone, without a traceback, speaks of code that doesn't fit a package."""
    lacks, called = ATTRIBUTE.match(case.message), ARGUMENT.search(case.message)
    if called is not None and called["function"]:
        return "__init__" in called["function"] or "." in called["function"]
    return lacks is not None and lacks["type"] not in PLAIN


def is_loading(frame: Frame) -> bool:
    """Whether a library's function loads a model there."""
    return frame.function == "from_pretrained" and package_of_file(frame.file) is not None


def _frameworks(case: Case) -> tuple[str, ...]:
    """Packages on the call stack, outermost first, without those common to most stacks."""
    names = (package_of_file(frame.file) for frame in case.frames)
    return tuple(dict.fromkeys(name for name in names if name and name not in STEADY))


def _owner(case: Case, package: str | None) -> str:
    """Describes the owner of the failed line."""
    if not case.kind:
        return "The log shows no exception"
    if package:
        return f"The line that failed is in {package}"
    if case.frame is not None:
        return f"It failed in line {case.frame.line} of {case.frame.file}"
    return "The log doesn't show whose line failed"


def _search_text(case: Case) -> str:
    """The exception's type and its quoted message, without parts specific to this run."""
    line = case.raised.message.strip().partition("\n")[0] or case.message
    if of_native := WHAT.search(case.message):
        line = of_native["said"]
    if case.frame is not None and case.frame.source.startswith("assert ") and line[:1] in "{[(":
        line = case.frame.source  # the message is nothing but values
    if case.kind == "KeyError" and " " in line:
        line = line.strip("'\"")  # Python quotes a whole message as if it were a key
    useful = [text for text in sentences(line) if not FOR_DEVELOPERS.search(text)]
    line = QUOTED.sub(_name_or_cut, " ".join(useful) or line)
    fragments = [" ".join(part.split()).strip(" .,!-") for part in VALUES.split(line)]
    long = sorted(
        (part for part in fragments if len(part.split()) >= FEWEST),
        key=lambda part: -len(part.split()),
    )[:2]
    chosen = [" ".join(part.split()[:MOST]) for part in fragments if part in long]
    if not chosen:
        chosen = [" ".join(filter(None, fragments))]
    quoted = " ".join(f'"{text}"' for text in chosen if text)
    return " ".join(filter(None, (case.kind, quoted)))


def _name_or_cut(quoted: re.Match[str]) -> str:
    """Keeps quoted names, which recur in other runs; cuts other quotations."""
    text = next(filter(None, quoted.groups()), "")
    return f"'{text}'" if text.isidentifier() else CUT


def _package(case: Case) -> str | None:
    """The package of the innermost frame outside the standard library; None for the script."""
    frames = (f for f in reversed(case.frames) if not HANDS_ON.search(f.source))
    names = (package_of_file(frame.file) for frame in frames)
    package = next((name for name in names if name != PYTHON), None)
    return "the code that came with the model" if package == MODEL_CODE else package
