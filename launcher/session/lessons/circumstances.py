"""The circumstances of a lesson: script, its files, the model, the deciding arguments."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...catalogue.package_names import pip_name
from ...core.hardware import Hardware
from ...core.plain_json import plain
from ...core.request import LaunchRequest
from ...core.workload import Origin, Workload
from ...frameworks.installed import installed
from ...system import regular_files
from ...workload.script.read_script import read_script
from ...workload.script.source_files import source_files

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
