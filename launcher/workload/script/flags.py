"""Parses a script's flags from its command line and argument files."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from ...core.workload import Origin
from ...frameworks.arguments import Argument
from ...frameworks.framework import FrameworkRow
from ...system import regular_files
from ...system.typed_yaml import read_mapping


def arguments_file(path: Path | None, names: frozenset[str]) -> list[str]:
    """Arguments from SCRIPT.args, which HfArgumentParser inserts before the command line."""
    beside = None if path is None else path.with_suffix(".args")
    if beside is None or "HfArgumentParser" not in names or not beside.is_file():
        return []
    return regular_files.read(beside).decode(errors="replace").split()


def flags_of(
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
