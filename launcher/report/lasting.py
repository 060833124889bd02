"""What to write into the user's own files, so that a corrected run needn't be corrected again."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..core.settings import Checkpointing, Framework, Setting, Value
from ..planning.plan import Change, Plan
from ..workload.script.decisive_calls import TRAINING
from ..workload.script.harmless_calls import dotted
from ..workload.script.source_files import SourceFile, source_files
from ..workload.script.unguarded_calls import called

IN_FILE = re.compile(r"(?P<file>\S+\.(?:json|ya?ml)): (?P<key>[\w.]+)")
"""Where a value was read in a configuration file."""
IN_SOURCE = re.compile(r"(?P<place>\S+\.py:\d+): (?P<name>\w+)")
"""Where one was read in the script or in a file that it imports."""
FLAG = re.compile(r"--(?!set$|preset$)(?P<name>[\w-]+)")
"""The flag of the script's own that gave one."""
ARGUMENTS: Mapping[Setting, str] = {
    Setting.MICRO_BATCH: "per_device_train_batch_size",
    Setting.ACCUMULATION: "gradient_accumulation_steps",
    Setting.FIND_UNUSED_PARAMETERS: "ddp_find_unused_parameters",
}
"""The Trainer's (transformers/training_args.py)."""
OF_CHECKPOINTING = ("gradient_checkpointing", "gradient_checkpointing_kwargs")
CALLS: Mapping[Setting, tuple[Sequence[str], str]] = {
    Setting.GRADIENT_CHECKPOINTING: (("checkpoint", "checkpoint_sequential"), "use_reentrant"),
    Setting.FIND_UNUSED_PARAMETERS: (("DistributedDataParallel",), "find_unused_parameters"),
    Setting.STATIC_GRAPH: (("DistributedDataParallel",), "static_graph"),
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
    files = source_files(plan.request).files
    if calls := [*_of_torch(files, change)]:
        yield from calls
    elif found and setting not in SEVERAL_KEYS:
        yield Edit(found["file"], f"{found['key']}: {json.dumps(new)}")
    elif plan.workload.framework is Framework.TRANSFORMERS and (given := _arguments(setting, new)):
        yield from _of_trainer(files, change.source, given)
    elif setting in DEEPSPEED:
        yield Edit("DeepSpeed's configuration", f"{DEEPSPEED[setting]}: {new}")


def _arguments(setting: Setting, new: Value) -> Mapping[str, object]:
    """The Trainer's arguments for a value; none where it has none."""
    if setting is Setting.GRADIENT_CHECKPOINTING:
        is_on, kwargs = OF_CHECKPOINTING
        if new == Checkpointing.OFF.value:
            return {is_on: False}
        return {is_on: True, kwargs: {"use_reentrant": new == Checkpointing.REENTRANT.value}}
    if setting is Setting.PRECISION:
        return {str(new): True}
    return {ARGUMENTS[setting]: new} if setting in ARGUMENTS else {}


def _of_trainer(
    files: Sequence[SourceFile], source: str, arguments: Mapping[str, object]
) -> Iterator[Edit]:
    """Where arguments of the Trainer's are given: in the source, by a flag, by none yet."""
    keywords = ", ".join(f"{name}={value}" for name, value in arguments.items())
    names = {*arguments, *(OF_CHECKPOINTING if OF_CHECKPOINTING[0] in arguments else ())}
    flag = FLAG.fullmatch(source)
    is_trainers = flag is not None and flag["name"].replace("-", "_") in names
    if (found := IN_SOURCE.match(source)) and found["name"] in names:
        yield Edit(found["place"], keywords)
    elif flag and not is_trainers and len(arguments) == 1:
        yield Edit("the script's arguments", f"{source} {_word(*arguments.values())}")
    elif not is_trainers and (calls := [*_calls_of_trainer(files)]):
        yield from (Edit(place, f"{name}(..., {keywords})") for place, name in calls)
    else:
        words = (f"--{name} {_word(value)}" for name, value in arguments.items())
        yield Edit("the script's arguments", " ".join(words))


def _word(value: object) -> str:
    """A value as a shell takes it."""
    text = json.dumps(value)
    return f"'{text}'" if isinstance(value, dict) else text


def _calls_of_trainer(files: Sequence[SourceFile]) -> Iterator[tuple[str, str]]:
    """The user's own lines that make the Trainer's arguments, and what they call."""
    for file, call in _calls(files):
        if TRAINING.search(called(call)):
            yield f"{file.path}:{call.lineno}", called(call)


def _of_torch(files: Sequence[SourceFile], change: Change) -> Iterator[Edit]:
    """The user's own lines that call torch's function, if it takes the setting."""
    if change.setting not in CALLS or change.new == Checkpointing.OFF.value:
        return
    functions, argument = CALLS[change.setting]
    value: object = change.new
    if change.setting is Setting.GRADIENT_CHECKPOINTING:
        value = change.new == Checkpointing.REENTRANT.value
    for file, call in _calls(files):
        name = dotted(call.func)
        if _is_torchs(name, functions, file):
            text = f"{name}(..., {argument}={value})"
            yield Edit(f"{file.path}:{call.lineno}", text)


def _calls(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, ast.Call]]:
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call):
                yield file, node


def _is_torchs(name: str, functions: Sequence[str], file: SourceFile) -> bool:
    """Whether a name stands for one of torch's functions: the user may have one of that name."""
    first, _, rest = name.partition(".")
    modules = {
        alias.asname or alias.name.partition(".")[0]: alias.name
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    module, original = file.names.get(first, (modules.get(first, ""), first))
    function = rest.rpartition(".")[2] if rest else original
    return module.partition(".")[0] == "torch" and function in functions
