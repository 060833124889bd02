"""Lessons of earlier runs that hold in a script's circumstances, applied to its first plan."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...catalogue.package_names import pip_name
from ...catalogue.reader import Catalogue
from ...core.constraint import Constraint
from ...core.errors import LaunchError, Refused, file_and_reason, reason_of
from ...core.hardware import Hardware
from ...core.plain_json import plain
from ...core.request import LaunchRequest
from ...core.workload import Origin, Workload
from ...diagnosis.observed import with_model
from ...frameworks.installed import installed
from ...planning.budget import gib
from ...system import regular_files
from ...workload.script.read_script import read_script
from ...workload.script.source_files import source_files
from . import store
from .lesson import Lesson, latest_run

UNUSABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, LaunchError)
"""Errors from a lesson's values that its schema allows: a model's configuration has none."""
INDIFFERENT = re.compile(
    r"(?!model)(?:"
    # how long, how fast and from where is trained; what is saved, logged and evaluated
    r"(?:.*_)?(?:dir|dirs|folder|seed|steps?|name|token|id|url|epochs?)"
    r"|(?:.*_)?(?:learning_rate|lr|lr_\w+|warmup\w*|weight_decay|adam_\w+|max_grad_norm|momentum)"
    r"|(?:save|eval|logging|log|report|hub|push|wandb|tensorboard|dataloader|ddp|fsdp|do)_\w+"
    r"|output|resume\w*|overwrite_\w+|verbose|disable_tqdm|local_?rank"
    # what a plan decides: a lesson is about the script under any of these
    r"|(?:per_device_\w+|train|eval|micro)_?batch_size\w*|batch_size|\w*accumulation\w*|deepspeed\w*"
    r"|(?:gradient|activation)_checkpointing\w*|zero_stage|bf16|fp16|tf32|offload\w*"
    # what is trained on
    r"|(?:.*_)?(?:data|dataset|datasets|corpus)(?:_\w+)?|(?:train|validation|valid|test|eval)_files?"
    r"|num_workers|\w*num_proc|\w*_samples)"
)
"""Arguments that may differ: no proof of a failure depends on them."""
CONFIGURING = re.compile(r"|\w*(?:conf|cfg|arch|model|params|recipe|yaml)\w*")
"""Arguments, positional ones included, whose file says what is trained; others may be written."""
CONFIGURATION = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".py")
LARGEST = 1 << 20
"""Bytes of a configuration file whose content counts."""
LENGTH = 12
"""Hexadecimal digits of a digest."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """Knowledge from earlier runs.

    Attributes:
        workload: the workload with that knowledge.
        constraints: further constraints.
        lessons: those that hold, with their files.
        notes: messages on the others.
    """

    workload: Workload
    constraints: tuple[Constraint, ...] = ()
    lessons: tuple[store.Kept, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether an earlier run has failed, or was started again before it could."""
        return any(kept.lesson.is_of_correction for kept in self.lessons)

    def sentences(self, catalogue: Catalogue, *, whole: bool = True) -> Iterator[str]:
        """A sentence for each lesson that is applied; unless `whole`, none of measurements."""
        for kept in self.lessons:
            lesson = kept.lesson
            if lesson.trained is not None and not whole:
                continue
            if lesson.trained is not None:
                subject = f"a rank needed {gib(lesson.trained.needed)} GiB of memory"
            elif (entry := catalogue.named(lesson.failure)) is not None:
                subject = entry.subject
            else:
                subject = "the workers' reports before their first step"
            failure = f" [{lesson.failure}]" if lesson.failure else ""
            by = f" by {kept.owner}" if kept.owner else ""
            yield f"learnt in {lesson.source}{by}: {subject}{failure}"


def learnt(
    request: LaunchRequest,
    workload: Workload,
    hardware: Hardware,
    catalogue: Catalogue,
    environment: Mapping[str, str],
) -> Learnt:
    """The lessons of a script's earlier runs that still hold.

    Raises:
        LaunchError: the script can't be read.
    """
    folders, script = store.folders(environment), script_name(request)
    if request.is_program or not any(store.find(folders, script)):
        return Learnt(workload)
    try:
        digest = circumstances(request, workload)
    except OSError as error:
        note = f"its lessons aren't looked up: {file_and_reason(error)}"
        return Learnt(workload, notes=(note,))
    matches = [*store.find(folders, script, digest)]
    earlier = latest_run(kept.lesson for kept in matches if isinstance(kept, store.Kept))
    result = Learnt(replace(workload, earlier=earlier))
    for match in matches:
        if isinstance(match, Refused):
            result = replace(result, notes=(*result.notes, f"ignored: {match.sentence}"))
        elif match.lesson.teaches and _holds(match.lesson, catalogue, workload):
            result = _with_lesson(result, match, machine(request, hardware))
    return result


def _holds(lesson: Lesson, catalogue: Catalogue, workload: Workload) -> bool:
    """Whether its known failure still concerns the versions that are installed."""
    versions = {name: workload.versions.get(name, "") for name in lesson.versions}
    return lesson.versions == versions and (
        not lesson.failure or catalogue.named(lesson.failure) is not None
    )


def _with_lesson(result: Learnt, kept: store.Kept, machine: str) -> Learnt:
    """Knowledge with a further lesson added; its measurements hold on the same machine alone."""
    lesson, workload = kept.lesson, result.workload
    if lesson.machine not in ("", machine):
        return result
    try:
        statements, constraints = [*lesson.statements(workload)], [*lesson.constraints()]
        measurements = [measurement.measured() for measurement in lesson.measured]
        measured = [entry for entry in measurements if entry not in workload.measured]
        trained = workload.trained if lesson.trained is None else lesson.trained.measured()
        if lesson.model is not None and workload.model is None:
            workload = with_model(workload, lesson.model, lesson.source, Origin.LEARNT)
    except UNUSABLE as error:
        note = f"{kept.path} is ignored: this version doesn't support it: {reason_of(error)}"
        return replace(result, notes=(*result.notes, note))
    workload = workload.informed(statements)
    return Learnt(
        replace(workload, measured=(*workload.measured, *measured), trained=trained),
        tuple(dict.fromkeys((*result.constraints, *constraints))),
        (*result.lessons, kept),
        result.notes,
    )


def script_name(request: LaunchRequest) -> str:
    """The name by which lessons on a script are found."""
    stem = request.script if request.is_module else Path(request.script).name.removesuffix(".py")
    return re.sub(r"[^\w.]+", "_", stem)


def machine(request: LaunchRequest, hardware: Hardware) -> str:
    """The machine on which a lesson's memory was measured: the workers, and their device."""
    device = hardware.accelerator
    return f"{request.world} x {device.name}, {device.memory} bytes"


def circumstances(request: LaunchRequest, workload: Workload) -> str:
    """A digest of all that lessons on a script depend on, wherever the script lies.

    Raises:
        LaunchError: the script can't be read.
    """
    parts = [*_sources(request), *_arguments(request)]
    if workload.model is not None:
        parts.append(json.dumps(workload.model, default=plain, sort_keys=True))
    return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:LENGTH]


def _sources(request: LaunchRequest) -> Iterator[str]:
    """The script's own files, by their places relative to each other."""
    files = source_files(request).files
    top = os.path.commonpath([file.path.absolute().parent for file in files]) if files else ""
    yield script_name(request)
    for path in sorted(file.path.absolute() for file in files):
        yield f"{path.relative_to(top)} {hashlib.sha256(regular_files.read(path)).hexdigest()}"


def _arguments(request: LaunchRequest) -> Iterator[str]:
    """The arguments that may decide what is trained, and the version of a script's owner."""
    script = read_script(request)
    flags = {**script.flags.all, **script.replaced}
    owners = [] if script.owner is None else [pip_name(script.owner.packages[0])]
    yield from (f"{name} {version}" for name, version in installed(owners).items())
    arguments = {
        name: flag.words or (() if flag.value is None else (str(flag.value),))
        for name, flag in flags.items()
        if not INDIFFERENT.fullmatch(name)
    }
    if not any(flag.origin is Origin.CONFIG for flag in flags.values()):
        before = itertools.takewhile(lambda word: not word.startswith("--"), request.arguments)
        arguments[""] = tuple(before)
    for name, words in sorted(arguments.items()):
        deciding = [*filter(None, (_deciding(name, word) for word in words))]
        if deciding or (name and not words):  # a switch decides by being there
            yield " ".join((f"--{name}", *deciding))


def _deciding(name: str, word: str) -> str:
    """The deciding part of an argument: for a file, its content instead of its path."""
    path = Path(word)
    with suppress(OSError, ValueError):
        if path.is_dir():
            path /= "config.json"  # of a model
        if CONFIGURING.fullmatch(name) and path.suffix in CONFIGURATION:
            return hashlib.sha256(regular_files.read(path, LARGEST)).hexdigest()
    is_path = word.startswith(("/", "./", "../", "~")) or Path(word).suffix in CONFIGURATION
    return "" if is_path else word
