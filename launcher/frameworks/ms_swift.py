"""ms-swift: what its arguments mean in each of its versions, and its defaults.

Checked in its versions 2.2 to 4.6: swift/llm/utils/argument.py in 2.x, swift/llm/argument in 3.x,
swift/arguments, swift/cli and swift/trainers/mixin.py in 4.x.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from ..core.choices import Adapter, Checkpointing, Engine, Offload, Output, Precision
from ..core.settings import Fact, Setting, Value
from ..core.workload import Known, Statement
from .config_files.deepspeed import ConfigError, load
from .config_files.vocabulary import KINDS, LORA, dtype_named
from .deepspeed import statements
from .framework import FrameworkRow, Script
from .installed import installed, package_folders
from .transformers import TRANSFORMERS, stated_mode

FOLDERS = ("config", "llm/ds_config")
"""Folders of ms-swift's configurations in 4.x, and in 2.x and 3.x."""
CONFIGURATIONS = {
    "zero0": (0, Offload.NONE),
    "zero1": (1, Offload.NONE),
    "zero2": (2, Offload.NONE),
    "zero3": (3, Offload.NONE),
    "zero2_offload": (2, Offload.OPTIMIZER),
    "zero3_offload": (3, Offload.OPTIMIZER_AND_PARAMETERS),
}
"""Stage and offload by 3.x's names; 2.x's `zero3-offload` leaves the optimizer on the device."""
BUCKET = 200_000_000
"""Both bucket sizes below stage 3; "auto" at stage 3."""
ANSWERED = {"grpo": 512}
"""Methods whose `max_length` covers only the prompt, with their default `max_completion_length`
(swift/arguments/rlhf_args.py)."""
SCORING = ("seq_cls", "embedding", "reranker", "generative_reranker")
"""Tasks without logits of the whole vocabulary (swift/model/register.py)."""
SIGNS = {
    "tuner_type": 4,
    "train_type": 3,
    "sft_type": 2,
    "model_id_or_path": 2,
    "batch_size": 2,
    "dtype": 2,
    "model": 3,
    "torch_dtype": 3,
}
"""First major version by flag, the most reliable first."""
REENTRANT_WITH_DDP = re.compile(r"3\.[0-5](\.|$)")
"""Versions that use reentrant checkpointing with DDP too."""
WITHOUT_ACCUMULATION = re.compile(r"3\.[0-2](\.|$)")
"""Versions that use transformers' default accumulation."""


def read(script: Script) -> Iterator[Statement]:
    """The named configuration, and defaults that differ from the Trainer's."""
    version = installed(("ms-swift",)).get("ms-swift", "")
    major = int(version.partition(".")[0]) if version[:1].isdigit() else _major(script)
    yield from _configuration(script)
    yield from _batch(script, major, version)
    yield from _checkpointing(script, major, version)
    yield from _precision(script, major)
    yield from _trained(script, major)
    yield from _length(script, major)
    task = script.text("task_type")
    if task is not None and task.value in SCORING:
        yield Fact.OUTPUT, task.known(Output.SCORES.value)
    # swift/utils/torch_utils.py, `get_default_device_map`
    if script.may_split and not (script.text("device_map") or script.text("deepspeed")):
        yield Fact.DEVICE_MAP, MS_SWIFT.default("device_map", value=True)


def _major(script: Script) -> int | None:
    """The major version, from the flags; None if ambiguous."""
    return next((major for flag, major in SIGNS.items() if flag in script.flags), None)


def _configuration(script: Script) -> Iterator[Statement]:
    """Statements of a named configuration, from its file if ms-swift is installed."""
    named = script.text("deepspeed")
    name = "" if named is None else str(named.value).removeprefix("default-").replace("-", "_")
    if named is None or name not in CONFIGURATIONS:
        return
    source = f"{named.source} {named.value}"
    for folder in package_folders("swift"):
        for path in (folder / inner / f"{name}.json" for inner in FOLDERS):
            if path.is_file():
                yield from _shipped(path, source, script)
                return
    stage, offload = CONFIGURATIONS[name]
    values: list[tuple[Setting | Fact, Value]] = [
        (Fact.ENGINE, Engine.DEEPSPEED.value),
        (Setting.ZERO_STAGE, stage),
        (Setting.OFFLOAD, offload.value),
        (Fact.CONTIGUOUS_GRADIENTS, True),
    ]
    if stage == 3:
        values.append((Fact.AUTO_BUCKETS, True))
    else:
        values += [(Fact.REDUCE_BUCKET, BUCKET), (Fact.ALLGATHER_BUCKET, BUCKET)]
    for setting, value in values:
        yield setting, Known(value, named.origin, source)


def _shipped(path: Path, source: str, script: Script) -> Iterator[Statement]:
    try:
        yield from statements(load(str(path)), source, script)
    except ConfigError as error:
        script.notes.append(f"{source}: {error}")


def _batch(script: Script, major: int | None, version: str) -> Iterator[Statement]:
    """A micro batch of 1, and the accumulation for a global batch of 16."""
    names = ("per_device_train_batch_size", "batch_size")
    size = script.first_number(*names)
    if size is None and set(names) & script.flags.keys():
        return
    micro = 1 if size is None else int(size.value)
    if size is None:
        yield Setting.MICRO_BATCH, MS_SWIFT.default(names[0], micro)
    else:
        yield Setting.MICRO_BATCH, size.known(micro)
    undecided = major is None or (major == 3 and not version)
    if "gradient_accumulation_steps" in script.flags or undecided:
        return
    steps = max(1, math.ceil(16 / micro / script.world))
    if WITHOUT_ACCUMULATION.match(version):
        steps = 1
    yield Setting.ACCUMULATION, MS_SWIFT.default("gradient_accumulation_steps", steps)


def _checkpointing(script: Script, major: int | None, version: str) -> Iterator[Statement]:
    """Checkpointing, on by default; non-reentrant with DDP since 3.6."""
    switch = script.boolean("gradient_checkpointing")
    if (switch is None and "gradient_checkpointing" in script.flags) or (
        switch is not None and not switch.value
    ):
        return
    stated = stated_mode(script)
    if stated is not None:
        yield Setting.GRADIENT_CHECKPOINTING, stated
        return
    partitioned = script.text("deepspeed") is not None
    mode = Checkpointing.REENTRANT if partitioned else Checkpointing.NON_REENTRANT
    if major == 2 or major is None or (major == 3 and not partitioned and not version):
        return
    if REENTRANT_WITH_DDP.match(version):
        mode = Checkpointing.REENTRANT
    default = MS_SWIFT.default("use_reentrant", mode.value)
    if switch is not None:
        default = Known(mode.value, switch.origin, f"{switch.source}, {default.source}")
    yield Setting.GRADIENT_CHECKPOINTING, default


def _precision(script: Script, major: int | None) -> Iterator[Statement]:
    """Precision: the loaded weights' dtype; fp32 becomes fp16 from 3.0."""
    if {"bf16", "fp16"} & script.flags.keys():
        return
    for flag in ("torch_dtype", "dtype"):
        dtype = script.text(flag)
        kind = None if dtype is None else dtype_named(str(dtype.value))
        if dtype is None or kind is None or (kind is Precision.FP32 and major is None):
            continue
        if kind is Precision.FP32 and major != 2:
            kind = Precision.FP16
        yield Setting.PRECISION, dtype.known(kind.value)
        return


def _trained(script: Script, major: int | None) -> Iterator[Statement]:
    """Trained parts: LoRA of rank 8; from 3.0 on in all linear layers outside a vision tower."""
    kind = script.first(*KINDS)
    if kind is None:
        if "pt" in script.program.replace("/", ".").split(".") and major in (2, None):
            return  # 2.x trains everything there
        yield Fact.ADAPTER, MS_SWIFT.default("the tuner's type", Adapter.LORA.value)
        yield Fact.FROZEN_PARAMETERS, MS_SWIFT.default("the tuner's type", value=True)
    adapted = kind is None or str(kind.value) in LORA
    if adapted and "lora_rank" not in script.flags:
        yield Fact.LORA_RANK, MS_SWIFT.default("lora_rank", 8)
    if adapted and major == 4:
        # Left to transformers, which doesn't recognize peft's wrapper as its own model.
        what = "ddp_find_unused_parameters with ms-swift's adapters"
        yield Setting.FIND_UNUSED_PARAMETERS, TRANSFORMERS.default(what, value=True)
    if major is None or major < 3:
        return
    if adapted and "target_modules" not in script.flags:
        yield Fact.LORA_TARGETS, MS_SWIFT.default("target_modules", "all-linear")
    yield Fact.VISION_TRAINED, MS_SWIFT.default("freeze_vit", value=False)


def _length(script: Script, major: int | None) -> Iterator[Statement]:
    """The length, with the answer's if it covers only the prompt."""
    stated, method = script.text("max_length"), script.text("rlhf_type")
    if stated is None:
        if major == 2 and "max_length" not in script.flags:
            yield Fact.SEQUENCE_LENGTH, MS_SWIFT.default("max_length", 2048)
        return
    if method is None or str(method.value) not in ANSWERED or str(stated.value) == "-1":
        return  # -1 is no limit in 2.x
    length = script.number("max_length")
    if length is None:
        return
    answer = script.number("max_completion_length")
    more = ANSWERED[str(method.value)] if answer is None else int(answer.value)
    source = f"{length.source} + {'max_completion_length' if answer is None else answer.source}"
    yield Fact.SEQUENCE_LENGTH, Known(int(length.value) + more, length.origin, source)


MS_SWIFT = FrameworkRow(
    "ms-swift",
    ("swift",),
    "modelscope/ms-swift",
    "ms-swift",
    commands=("swift",),
    launching=("swift/cli/",),
    in_log=r"swift/(?:llm|trainers)/",
    on_trainer=True,
    program=r"(^|[./])swift[./]cli[./]",
    functions=frozenset({"sft_main", "pt_main", "rlhf_main"}),
    renamed={"model_name": "name_that_the_model_learns"},
    replaced_defaults=frozenset(
        {
            *("gradient_checkpointing", "bf16"),
            *("per_device_train_batch_size", "gradient_accumulation_steps"),
        }
    ),
    methods={"rlhf": "dpo"},
    adapts=True,
    pixels="MAX_PIXELS",
    read=read,
)
