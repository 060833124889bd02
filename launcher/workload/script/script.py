"""The user's script as far as it can be known without running it: flags, imports, versions."""

from __future__ import annotations

import ast
import itertools
import os
import re
import sys
import tokenize
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ...core.errors import ExitCode, LaunchError
from ...core.request import LaunchRequest
from ...core.settings import Origin
from ...system.typed_yaml import read_mapping

FRAMEWORKS = ("torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "torch_npu")

OWNERS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("swift", r"(^|[./])swift[./]cli[./]", frozenset({"sft_main", "pt_main", "rlhf_main"})),
    ("llamafactory", r"(^|[./])(llamafactory|llmtuner)([./-]|$)", frozenset({"run_exp"})),
    ("FlagEmbedding", r"^FlagEmbedding\.", frozenset()),
)
"""Frameworks that own the whole script and take all of its arguments from the command line: a
pattern of the program's name, and the functions that a script of the user's own calls instead."""

_PACKAGES = {
    "swift": {"swift"},
    "llamafactory": {"llamafactory", "llmtuner"},
    "FlagEmbedding": {"FlagEmbedding"},
}
"""Packages of the owners, older names included."""

PARSERS = {"HfArgumentParser", "TrlParser"}
"""Scripts that name one of these take all arguments from the command line: absent is default."""

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
        world: the number of workers on all nodes.
        notes: what a reader has seen and could not use, in words.
        owner: `swift`, `llamafactory` or `FlagEmbedding` where the script is one of theirs.
        program: path of the script, or name of the module.
    """

    flags: Mapping[str, Given]
    names: frozenset[str]
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    world: int
    notes: list[str] = field(default_factory=list)
    owner: str = ""
    program: str = ""

    @property
    def takes_all(self) -> bool:
        """Whether all arguments come from the command line, so that what is absent is default."""
        return bool(self.owner) or bool(self.names & PARSERS)

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
    path = module_file(request.script) if request.is_module else script_file(request.script)
    tree = None if path is None else _parsed(path)
    names = frozenset() if tree is None else frozenset(_names(tree))
    if request.is_module:
        names |= {request.script.partition(".")[0]}
    owner = owner_of(request.script, names)
    arguments = [*_arguments_file(path, names), *request.arguments]
    return Script(
        flags=_flags(arguments, names, owner),
        names=names,
        versions=installed(FRAMEWORKS),
        environment=dict(os.environ),
        world=request.world,
        owner=owner,
        program=request.script,
    )


def owner_of(program: str, names: frozenset[str]) -> str:
    """The framework whose own script a program is; empty for none."""
    for owner, pattern, functions in OWNERS:
        if re.search(pattern, program) or (functions & names and _PACKAGES[owner] & names):
            return owner
    return ""


def installed(names: Sequence[str]) -> dict[str, str]:
    """Installed versions by distribution name, without importing anything."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def package_folders(name: str) -> Iterator[Path]:
    """Where a package lies on the interpreter's path, without importing it."""
    folders = (Path(folder, name) for folder in ("", *sys.path))
    return (folder for folder in folders if (folder / "__init__.py").is_file())


def module_file(name: str) -> Path | None:
    """The file of a module; None where it isn't on the interpreter's path."""
    stem = Path(*name.split("."))
    for folder in ("", *sys.path):
        for path in (Path(folder, stem).with_suffix(".py"), Path(folder, stem, "__main__.py")):
            if path.is_file():
                return path
    return None


def script_file(script: str) -> Path | None:
    """The file that a script is: itself, or a folder's `__main__.py`; None for a zip of modules."""
    path = Path(script)
    main = path / "__main__.py"
    if path.is_file() and zipfile.is_zipfile(path):
        return None
    return main if main.is_file() else path


def _parsed(path: Path) -> ast.Module:
    """The script's syntax tree.

    Raises:
        LaunchError: the file doesn't exist, can't be read or isn't Python.
    """
    if path.is_dir():
        raise LaunchError(
            ExitCode.USAGE,
            f"{path} is a folder, not a Python script",
            "a folder can be run if it has a __main__.py",
        )
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


def _flags(arguments: Sequence[str], names: frozenset[str], owner: str) -> dict[str, Given]:
    """The script's flags, in all forms that HfArgumentParser and TrlParser take.

    `--name value`, `--name=value`, `--name` alone, dashes or underscores; a single .json or .yaml
    file instead of flags; trl's `--config FILE`, whose values yield to flags; LLaMA-Factory's
    `[train] FILE key=value ...`.
    """
    if owner == "llamafactory" and arguments[:1] == ["train"]:
        arguments = arguments[1:]
    first = arguments[0] if arguments else ""
    is_file = first.endswith((".json", ".yaml", ".yml")) and not first.startswith("-")
    if is_file and (len(arguments) == 1 or owner == "llamafactory"):
        return {**_from_file(Path(first)), **_overrides(arguments[1:])}
    flags: dict[str, Given] = {}
    for index, argument in enumerate(arguments):
        if not argument.startswith("--") or argument == "--":
            continue
        name, equals, text = argument[2:].partition("=")
        rest = itertools.takewhile(lambda one: not one.startswith("--"), arguments[index + 1 :])
        words = (text,) if equals else tuple(rest)
        value = words[0] if words else None
        flags[name.replace("-", "_")] = Given(value, Origin.FLAG, f"--{name}", words)
    config = flags.get("config")
    if "trl" in names and config is not None and config.value:
        return {**_from_file(Path(config.value)), **flags}
    return flags


def _overrides(pairs: Sequence[str]) -> dict[str, Given]:
    """`key=value` behind a file, as OmegaConf takes it."""
    flags = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if equals:
            flags[name] = Given(None if text == "null" else text, Origin.FLAG, f"{name}=", (text,))
    return {name: given for name, given in flags.items() if given.value is not None}


def _from_file(path: Path) -> dict[str, Given]:
    """The arguments in a file of them; a key with `null` says nothing."""
    return {
        str(key): Given(value, Origin.CONFIG, f"{path.name}: {key}")
        for key, value in read_mapping(path).items()
        if value is not None
    }
