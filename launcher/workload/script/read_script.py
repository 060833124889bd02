"""Reads the script's flags and the words of its source without running it."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ...core.request import LaunchRequest
from ...core.workload import VERSIONED, Origin
from ...frameworks.framework import Argument, Flags, FrameworkRow, Script, SourceWords
from ...frameworks.installed import installed
from ...frameworks.registry import FRAMEWORKS
from ...system import regular_files
from ...system.typed_files import read_mapping
from .files import module_file, parsed, script_file
from .source_files import source_files, words_of


def read_script(request: LaunchRequest) -> Script:
    """Reads everything known about the script without running it.

    Raises:
        LaunchError: the script is missing or has a syntax error, or its argument file can't be
            read.
    """
    path = module_file(request.script) if request.is_module else script_file(request.script)
    tree = None if path is None else parsed(path)
    names = frozenset() if tree is None else frozenset(_names(tree))
    if request.is_module:
        names |= {request.script.partition(".")[0]}
    owner = _owner_of(request.script, names)
    arguments = [*_arguments_file(path, names), *request.arguments]
    # The framework's reader covers its own program.
    words = SourceWords() if owner else words_of(source_files(request))
    flags = _flags_of(arguments, names, owner)
    return Script(
        flags=Flags({name: each for name, each in flags.items() if name not in words.assigned}),
        replaced={name: each for name, each in flags.items() if name in words.assigned},
        names=names,
        versions=installed(VERSIONED),
        environment=dict(os.environ),
        world=request.world,
        owner=owner,
        program=request.script,
        words=words,
        tree=tree,
    )


def _owner_of(program: str, names: frozenset[str]) -> FrameworkRow | None:
    """The framework that takes all of a program's arguments; None if there is none."""
    return next((row for row in FRAMEWORKS if _owns(row, program, names)), None)


def _owns(row: FrameworkRow, program: str, names: frozenset[str]) -> bool:
    called = not names.isdisjoint(row.functions) and not names.isdisjoint(row.packages)
    return called or bool(row.program and re.search(row.program, program))


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
    """Arguments from SCRIPT.args, which HfArgumentParser inserts before the command line."""
    beside = None if path is None else path.with_suffix(".args")
    if beside is None or "HfArgumentParser" not in names or not beside.is_file():
        return []
    return regular_files.read(beside).decode(errors="replace").split()


def _flags_of(
    arguments: Sequence[str], names: frozenset[str], owner: FrameworkRow | None
) -> dict[str, Argument]:
    """Parses flags in all forms of HfArgumentParser and TrlParser, and those of a framework.

    Forms: `--name value`, `--name=value`, `--name` alone, dashes or underscores; a single .json or
    .yaml file instead of flags; trl's `--config FILE`, whose values yield to flags; a framework's
    `[train] FILE key=value --flag ...`.
    """
    takes_file = owner is not None and owner.takes_file
    if takes_file and arguments[:1] == ["train"]:
        arguments = arguments[1:]
    first = arguments[0] if arguments else ""
    is_path = first.endswith((".json", ".yaml", ".yml")) and not first.startswith("-")
    is_file = is_path and (len(arguments) == 1 or takes_file)
    flags: dict[str, Argument] = {}
    if is_file:
        flags = {**_from_file(Path(first)), **_overrides(arguments[1:])}
    for index, argument in enumerate(arguments):
        if not argument.startswith("--") or argument == "--":
            continue
        name, equals, text = argument[2:].partition("=")
        rest = itertools.takewhile(lambda word: not word.startswith("--"), arguments[index + 1 :])
        words = (text,) if equals else tuple(rest)
        value = words[0] if words else None
        flags[name.replace("-", "_")] = Argument(value, Origin.FLAG, f"--{name}", words)
    config = None if is_file else flags.get("config")
    if "trl" in names and config is not None and config.value:
        flags = {**_from_file(Path(config.value)), **flags}
    return flags if owner is None else _completed(flags, owner)


def _completed(flags: dict[str, Argument], owner: FrameworkRow) -> dict[str, Argument]:
    """A framework's arguments and defaults, by the readers' names."""
    absent = {
        name: Argument(value, Origin.DEFAULT, owner.default(name, value).source)
        for name, value in owner.defaults.items()
    }
    return {owner.renamed.get(name, name): flag for name, flag in (absent | flags).items()}


def _overrides(pairs: Sequence[str]) -> dict[str, Argument]:
    """`key=value` after a file, as in OmegaConf."""
    flags = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if equals and not pair.startswith("--"):
            flags[name] = Argument(
                None if text == "null" else text, Origin.FLAG, f"{name}=", (text,)
            )
    return {name: flag for name, flag in flags.items() if flag.value is not None}


def _from_file(path: Path) -> dict[str, Argument]:
    """The arguments in a file; keys with `null` are ignored."""
    return {
        str(key): Argument(value, Origin.CONFIG, f"{path.name}: {key}")
        for key, value in read_mapping(path).items()
        if value is not None
    }
