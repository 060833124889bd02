"""What to write into the user's own files, so that a corrected run needn't be corrected again."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..core.request import LaunchRequest
from ..core.settings import Checkpointing, Framework, Setting, Value
from ..planning.plan import Change, Plan
from ..workload.script.source_files import source_files

IN_FILE = re.compile(r"(?P<file>\S+\.(?:json|ya?ml)): (?P<key>[\w.]+)")
"""Where a value was read in a configuration file."""
ARGUMENTS: Mapping[Setting, str] = {
    Setting.MICRO_BATCH: "--per_device_train_batch_size",
    Setting.ACCUMULATION: "--gradient_accumulation_steps",
    Setting.FIND_UNUSED_PARAMETERS: "--ddp_find_unused_parameters",
}
"""The Trainer's (transformers/training_args.py)."""
CALLS: Mapping[Setting, tuple[frozenset[str], str]] = {
    Setting.GRADIENT_CHECKPOINTING: (
        frozenset({"checkpoint", "checkpoint_sequential"}),
        "use_reentrant",
    ),
    Setting.FIND_UNUSED_PARAMETERS: (
        frozenset({"DistributedDataParallel", "DDP"}),
        "find_unused_parameters",
    ),
    Setting.STATIC_GRAPH: (frozenset({"DistributedDataParallel", "DDP"}), "static_graph"),
}
"""The functions of torch that take a setting, and by which argument."""
DEEPSPEED = {
    Setting.ZERO_STAGE: "zero_optimization.stage",
    Setting.MICRO_BATCH: "train_micro_batch_size_per_gpu",
    Setting.ACCUMULATION: "gradient_accumulation_steps",
}
"""The keys of DeepSpeed's configuration."""
SEVERAL_KEYS = (Setting.GRADIENT_CHECKPOINTING, Setting.PRECISION, Setting.OFFLOAD)
"""Settings that aren't the value of a single key in any file."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A place in the user's files or command line, and what to write there.

    Attributes:
        place: file, file and line, or the command line.
        text: what to write.
    """

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def edits(plan: Plan) -> list[Edit]:
    """What to write, for each change of a plan for which it is known.

    Args:
        plan: one that has trained to the end.
    """
    return [edit for change in plan.changes for edit in _edits(plan, change)]


def _edits(plan: Plan, change: Change) -> Iterator[Edit]:
    setting, new = change.setting, change.new
    found = IN_FILE.fullmatch(change.source)
    is_trainer = plan.workload.framework is Framework.TRANSFORMERS
    if calls := [*_in_calls(plan.request, change)]:
        yield from calls
    elif found and setting not in SEVERAL_KEYS:
        yield Edit(found["file"], f"{found['key']}: {json.dumps(new)}")
    elif is_trainer and (argument := _argument(setting, new)):
        yield Edit("the script's arguments", argument)
    elif setting in DEEPSPEED:
        yield Edit("DeepSpeed's configuration", f"{DEEPSPEED[setting]}: {new}")


def _argument(setting: Setting, new: Value) -> str:
    """Arguments of the Trainer's; empty where it has none."""
    if setting is Setting.GRADIENT_CHECKPOINTING:
        if new == Checkpointing.OFF.value:
            return "--gradient_checkpointing false"
        kwargs = json.dumps({"use_reentrant": new == Checkpointing.REENTRANT.value})
        return f"--gradient_checkpointing true --gradient_checkpointing_kwargs '{kwargs}'"
    if setting is Setting.PRECISION:
        return f"--{new} true"
    return f"{ARGUMENTS[setting]} {json.dumps(new)}" if setting in ARGUMENTS else ""


def _in_calls(request: LaunchRequest, change: Change) -> Iterator[Edit]:
    """The user's own lines that call torch's function, if it takes the setting."""
    if change.setting not in CALLS or change.new == Checkpointing.OFF.value:
        return
    functions, argument = CALLS[change.setting]
    value: object = change.new
    if change.setting is Setting.GRADIENT_CHECKPOINTING:
        value = change.new == Checkpointing.REENTRANT.value
    for file in source_files(request).files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call) and (name := _name(node.func)) in functions:
                yield Edit(f"{file.path}:{node.lineno}", f"{name}(..., {argument}={value})")


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
