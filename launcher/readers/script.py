"""The user's script as far as it can be known without running it: flags, imports, versions."""

from __future__ import annotations

import ast
import itertools
import os
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ..documents import read_mapping
from ..exit_code import ExitCode, LaunchError
from ..request import LaunchRequest
from ..settings import Origin

FRAMEWORKS = ("torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "torch_npu")

OWNERS = {"swift", "llamafactory", "llmtuner", "FlagEmbedding"}
"""Packages whose commands take all arguments of Hugging Face's Trainer from the command line."""

TRUE = ("yes", "true", "t", "y", "1")
FALSE = ("no", "false", "f", "n", "0")
"""The words that `string_to_bool` of transformers/hf_argparser.py takes for true and false."""


@dataclass(frozen=True, slots=True)
class Given:
    """The value of one flag or configuration key, and where it stands.

    Attributes:
        value: text from a command line, or a typed value from a file; None for a flag alone.
        origin: flag or configuration file.
        source: the place in words.
        words: on a command line, everything up to the next flag.
    """

    value: Any
    origin: Origin
    source: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """What the readers read from.

    Attributes:
        flags: what is given to the script, by name with underscores.
        names: modules that the script imports and names that it imports from them.
        versions: installed versions of the frameworks.
        environment: the launcher's environment, which the workers inherit.
        nproc: the number of workers.
        notes: what a reader has seen and could not use, in words.
    """

    flags: Mapping[str, Given]
    names: frozenset[str]
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    nproc: int
    notes: list[str] = field(default_factory=list)

    def text(self, name: str) -> Given | None:
        """A flag with a value; an empty one (`--deepspeed "$UNSET"`) counts as none."""
        given = self.flags.get(name)
        return given if given is not None and given.value else None

    def number(self, name: str) -> Given | None:
        """A flag with a positive whole number; anything else is noted and left to the script."""
        given = self.flags.get(name)
        if given is None or given.value is None:
            return None
        try:
            value = int(str(given.value))
        except ValueError:
            value = 0
        if value < 1:
            self.notes.append(f"{given.source}: {given.value!r} is no positive whole number")
            return None
        return Given(value, given.origin, given.source)

    def boolean(self, name: str) -> Given | None:
        """A flag in any form of a boolean, `--no_name` included."""
        given = self.flags.get(name)
        if given is None:
            opposite = self.flags.get(f"no_{name}")
            if opposite is None or opposite.value is not None:
                return None
            return Given(False, opposite.origin, opposite.source)
        word = "true" if given.value is None else str(given.value).lower()
        if word not in TRUE + FALSE:
            self.notes.append(f"{given.source}: {given.value!r} is neither true nor false")
            return None
        return Given(word in TRUE, given.origin, given.source)


def read_script(request: LaunchRequest) -> Script:
    """Everything about the script that is known without running it.

    Raises:
        LaunchError: there is no such script, it has a syntax error, or its file of arguments can't
            be read.
    """
    path = _module_file(request.script) if request.is_module else Path(request.script)
    tree = None if path is None else _parsed(path)
    names = frozenset() if tree is None else frozenset(_names(tree))
    if request.is_module:
        names |= {request.script.partition(".")[0]}
    if names & OWNERS:
        names |= {"HfArgumentParser"}
    arguments = [*_arguments_file(path, names), *request.arguments]
    return Script(
        flags=_flags(arguments, names),
        names=names,
        versions=installed(FRAMEWORKS),
        environment=dict(os.environ),
        nproc=request.nproc,
    )


def installed(names: Sequence[str]) -> dict[str, str]:
    """Installed versions by distribution name, without importing anything."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _module_file(name: str) -> Path | None:
    """The file of a module under the working directory; None where it lies elsewhere."""
    stem = Path(*name.split("."))
    for path in (stem.with_suffix(".py"), stem / "__main__.py"):
        if path.is_file():
            return path
    return None


def _parsed(path: Path) -> ast.Module:
    """The script's syntax tree.

    Raises:
        LaunchError: the file doesn't exist, can't be read or isn't Python.
    """
    if path.is_dir():
        raise LaunchError(ExitCode.USAGE, f"{path} is a folder, not a Python script")
    try:
        with tokenize.open(path) as source:
            return ast.parse(source.read(), filename=str(path))
    except FileNotFoundError:
        raise LaunchError(
            ExitCode.USAGE, f"there is no script {path}", f"looked in {Path.cwd()}"
        ) from None
    except OSError as error:
        raise LaunchError(ExitCode.USAGE, f"{path} can't be read: {error.strerror}") from error
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        line = (error.text or "").strip()
        hint = f"the line is: {line}" if line else ""
        raise LaunchError(ExitCode.USAGE, f"{where}: syntax error: {error.msg}", hint) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise LaunchError(ExitCode.USAGE, f"{path} isn't Python source: {error}") from error


def _names(tree: ast.Module) -> set[str]:
    """Top-level packages that are imported, and the names imported from them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(node.attr)  # `transformers.HfArgumentParser(...)`
    return names


def _arguments_file(path: Path | None, names: frozenset[str]) -> list[str]:
    """What HfArgumentParser puts before the command line: a file SCRIPT.args by the script."""
    beside = None if path is None else path.with_suffix(".args")
    if beside is None or "HfArgumentParser" not in names or not beside.is_file():
        return []
    return beside.read_text(encoding="utf-8", errors="replace").split()


def _flags(arguments: Sequence[str], names: frozenset[str]) -> dict[str, Given]:
    """The script's flags, in all forms that HfArgumentParser and TrlParser take.

    `--name value`, `--name=value`, `--name` alone, dashes or underscores; a single .json or .yaml
    file instead of flags; trl's `--config FILE`, whose values yield to flags.
    """
    only = arguments[0] if len(arguments) == 1 else ""
    if only.endswith((".json", ".yaml", ".yml")) and not only.startswith("-"):
        return _from_file(Path(only))
    if names & {"llamafactory", "llmtuner"}:
        return _llama_factory(arguments)
    flags: dict[str, Given] = {}
    for index, argument in enumerate(arguments):
        if not argument.startswith("--") or argument == "--":
            continue
        name, equals, text = argument[2:].partition("=")
        value: str | None = text if equals else None
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        if not equals and following is not None and not following.startswith("--"):
            value = following
        rest = itertools.takewhile(lambda one: not one.startswith("--"), arguments[index + 1 :])
        words = (text,) if equals else tuple(rest)
        flags[name.replace("-", "_")] = Given(value, Origin.FLAG, f"--{name}", words)
    config = flags.get("config")
    if "trl" in names and config is not None and config.value:
        return {**_from_file(Path(config.value)), **flags}
    return flags


def _llama_factory(arguments: Sequence[str]) -> dict[str, Given]:
    """`[train] FILE.yaml key=value ...`, or flags."""
    plain = [one for one in arguments if one not in ("train", "sft")]
    if not plain or not plain[0].endswith((".json", ".yaml", ".yml")):
        return _flags(plain, frozenset())
    flags = _from_file(Path(plain[0]))
    for pair in plain[1:]:
        name, equals, text = pair.removeprefix("--").partition("=")
        if equals:
            flags[name] = Given(text, Origin.FLAG, name)
    return flags


def _from_file(path: Path) -> dict[str, Given]:
    """The arguments in a file of them."""
    return {
        str(key): Given(value, Origin.CONFIG, f"{path.name}: {key}")
        for key, value in read_mapping(path).items()
    }
