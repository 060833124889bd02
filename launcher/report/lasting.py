"""Edits to the user's files or command line that make a run's corrections permanent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct

from ..core.choices import Checkpointing, Framework
from ..core.request import LaunchRequest
from ..core.settings import Setting, Value
from ..planning.estimates.versions import is_at_least
from ..planning.plan import Change, Plan
from ..workload.script.calls import called, dotted
from ..workload.script.source_files import SourceFile, source_files
from .argument_lines import Arguments, calls_of, lines_that_set, makers

IN_FILE = re.compile(r"(?P<file>\S+\.(?:json|ya?ml)): (?P<key>[\w.]+)")
"""The source of a value from a configuration file."""
IN_ENVIRONMENT = re.compile(r"\$(?P<name>\w+)")
"""The source of a value from an environment variable."""
FLAG = re.compile(r"--(?!set$|preset$)(?P<name>[\w-]+)")
"""The source of a value from a flag of the script."""
OF_CHECKPOINTING = ("gradient_checkpointing", "gradient_checkpointing_kwargs")
NEWER = ("activation_checkpointing", "activation_checkpointing_kwargs")
"""The same from late 5.x on, which goes before the older; with 6 it is alone."""
COMMAND_LINE = "the script's arguments"


class Edit(Struct, frozen=True):
    """A place in the user's files or command line, and what to write there.

    Attributes:
        place: file, file and line, or the command line.
        text: what to write.
        file: the file's whole path; empty if it isn't known, or if there is none.
        line: of a file in Python, the line of the call or the value.
        values: of a configuration file, the keys, with dots between levels, and their values.
    """

    place: str
    text: str
    file: str = ""
    line: int = 0
    values: dict[str, str | int | bool] = {}

    @property
    def is_argument(self) -> bool:
        """Whether it is for the script's command line."""
        return self.place == COMMAND_LINE

    @property
    def is_python(self) -> bool:
        """Whether it is a line of Python, which is left to its author."""
        return self.file.endswith(".py")

    @property
    def is_written(self) -> bool:
        """Whether it is in a file that `safe-launch fix --apply` writes."""
        return bool(self.file) and not self.is_python

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def edits(plan: Plan) -> list[Edit]:
    """The known edits for each change of a plan, each once: a line may have several calls."""
    result: list[Edit] = []
    for change in plan.changes:
        for edit in _edits(plan, change):
            if edit not in result:
                result.append(edit)
    return result


def _edits(plan: Plan, change: Change) -> Iterator[Edit]:
    """The edits of one change; below stage 3 `deepspeed.zero.Init` would still partition."""
    setting, new, row = change.setting, change.new, change.setting.row
    has_keys = not issubclass(setting.kind, Enum)  # no file has safe-launch's words
    in_file = IN_FILE.fullmatch(change.source)
    files = source_files(plan.request).files
    if setting is Setting.ZERO_STAGE and new != 3:
        yield from _with_argument(files, "deepspeed", ("Init",), "enabled", value=False)
    if calls := [*_in_users_calls(files, change)]:
        yield from calls
    elif in_file and has_keys:
        text = f"{in_file['key']}: {json.dumps(new)}"
        path = _file_named(plan.request, in_file["file"])
        yield Edit(in_file["file"], text, path, values={in_file["key"]: new})
    elif (variable := IN_ENVIRONMENT.fullmatch(change.source)) and has_keys:
        yield Edit("the environment", f"{variable['name']}={_word(new)}")
    elif plan.workload.framework is Framework.TRANSFORMERS and (
        arguments := _arguments(setting, new, _names_of_checkpointing(plan, change.source))
    ):
        yield from _of_trainer(files, change.source, arguments)
    elif row.deepspeed:
        yield Edit("DeepSpeed's configuration", f"{row.deepspeed}: {new}")
    elif row.fsdp:
        yield Edit("FSDP's configuration", f"{row.fsdp}: {_word(new)}")


def _file_named(request: LaunchRequest, name: str) -> str:
    """The path of a configuration file: an argument names it, or it lies here or at the script."""
    words = (word.rpartition("=")[2] for word in request.arguments)
    named = [Path(word) for word in words if Path(word).name == name]
    near = [Path(name), Path(request.script).with_name(name)]
    paths = {str(path.resolve()) for path in named or near if path.is_file()}
    return paths.pop() if len(paths) == 1 else ""


def _names_of_checkpointing(plan: Plan, source: str) -> tuple[str, str]:
    """The names in the script's arguments, or else in the installed transformers."""
    is_stated = any(word.lstrip("-").startswith(NEWER[0]) for word in plan.request.arguments)
    is_newer = is_stated or NEWER[0] in source or is_at_least(plan.workload, "transformers", 6, 0)
    return NEWER if is_newer else OF_CHECKPOINTING


def _arguments(setting: Setting, new: Value, of_checkpointing: tuple[str, str]) -> Arguments:
    """The Trainer's arguments for a value; none if it has none."""
    if setting is Setting.GRADIENT_CHECKPOINTING:
        is_on, kwargs = of_checkpointing
        if new == Checkpointing.OFF.value:
            return {is_on: False}
        return {is_on: True, kwargs: {"use_reentrant": new == Checkpointing.REENTRANT.value}}
    if setting is Setting.PRECISION:
        return {str(new): True}
    argument = setting.row.argument
    return {argument: new} if argument and setting is not Setting.STATIC_GRAPH else {}


def _of_trainer(files: Sequence[SourceFile], source: str, arguments: Arguments) -> Iterator[Edit]:
    """The edits of the Trainer's arguments: in the source, else on the command line."""
    keywords = _keywords(arguments)
    both = {*OF_CHECKPOINTING, *NEWER}
    names = {*arguments, *(both if both & arguments.keys() else ())}
    flag = FLAG.fullmatch(source)
    is_trainers = flag is not None and flag["name"].replace("-", "_") in names
    if flag and not is_trainers and len(arguments) == 1:
        yield Edit(COMMAND_LINE, f"{source} {_word(*arguments.values())}")
        return
    calls = [] if is_trainers else makers(files, source, names)
    if not is_trainers and (lines := lines_that_set(files, calls, arguments)):
        for file, line, stated in lines:
            yield _edit(file, line, _keywords(stated))
    elif calls:
        for file, call in calls:
            yield _edit(file, call.lineno, f"{called(call)}(..., {keywords})")
    else:
        words = (f"--{name} {_word(value)}" for name, value in arguments.items())
        yield Edit(COMMAND_LINE, " ".join(words))


def _keywords(arguments: Arguments) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items())


def _edit(file: SourceFile, line: int, text: str) -> Edit:
    return Edit(f"{file.path}:{line}", text, str(file.path.resolve()), line)


def _word(value: object) -> str:
    """A value as a shell takes it."""
    text = json.dumps(value)
    return f"'{text}'" if isinstance(value, dict) else text


def _in_users_calls(files: Sequence[SourceFile], change: Change) -> Iterator[Edit]:
    """The user's calls of a function of torch that takes the setting."""
    setting, row, value = change.setting, change.setting.row, change.new
    if not row.calls or value == Checkpointing.OFF.value:
        return
    if setting is Setting.GRADIENT_CHECKPOINTING:
        value = change.new == Checkpointing.REENTRANT.value
    keyword = row.keyword or setting.value
    yield from _with_argument(files, "torch", row.calls, keyword, value=value)


def _with_argument(
    files: Sequence[SourceFile],
    package: str,
    functions: Sequence[str],
    argument: str,
    *,
    value: Value,
) -> Iterator[Edit]:
    for file, call in calls_of(files):
        name = dotted(call.func)
        if _is_of(package, name, functions, file):
            yield _edit(file, call.lineno, f"{name}(..., {argument}={value})")


def _is_of(package: str, name: str, functions: Sequence[str], file: SourceFile) -> bool:
    """Whether a name denotes one of a package's functions, and not the user's."""
    first, _, rest = name.partition(".")
    module, original = file.names.get(first) or (file.modules.get(first, ""), first)
    function = rest.rpartition(".")[2] if rest else original
    return module.partition(".")[0] == package and function in functions
