"""Defaults for options, from variables and files of host, user and project."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import LaunchError
from ..core.nearest import meant
from ..system import regular_files
from ..system.typed_files import check_aliases

VARIABLE = "SAFE_LAUNCH_CONFIG"
"""Variable with another path of the user's file; empty for no file."""
HOSTS = Path("/etc/safe-launch/config.yaml")
"""The host administrator's file."""
VARIABLES = {
    "SAFE_LAUNCH_ASK": "--ask",
    "SAFE_LAUNCH_CHECK": "--check",
    "SAFE_LAUNCH_NEVER_CHANGE": "--never-change",
}
"""Options set by safe-launch's variables."""
SWITCH = {True: "on", False: "off"}
"""Meaning of YAML's values for a bare `on` and `off`."""
TABLE = b"[tool.safe-launch]"
REPEATED = type(argparse.ArgumentParser().add_argument("--any", action="append"))
"""The class of repeatable options."""
NO_DEFAULT = {"help", "version", "module", "no_python", "json"}
"""Options of a single call, whose defaults would change the meaning of a command line."""


@dataclass(frozen=True, slots=True)
class Default:
    """An option's default."""

    words: tuple[str, ...]
    key: str
    file: Path


def defaults(
    options: Callable[[], Mapping[str, argparse.Action]],
    folder: Path,
    environment: Mapping[str, str],
) -> list[Default]:
    """Defaults from files of host, user and project; later ones win.

    Args:
        options: returns the parser's options by spelling.
        folder: the script's folder, from which to search upwards for the project.
        environment: the launcher's environment.

    Raises:
        LaunchError: a file can't be read, or has an unknown option or a wrong value.
    """
    collected = []
    for file, document in _documents(folder, environment):
        for key, value in document.items():
            words = tuple(_words(options(), file, str(key), value))
            collected += [Default(words, str(key), file)] if words else []
    return collected


def by_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Options in safe-launch's non-empty variables, as words."""
    for variable, option in VARIABLES.items():
        if text := environment.get(variable, ""):
            yield f"{variable}={text}", [f"{option}={text}"]


def _documents(
    folder: Path, environment: Mapping[str, str]
) -> Iterator[tuple[Path, Mapping[Any, Any]]]:
    """The existing files, with their contents."""
    try:
        has_hosts = HOSTS.is_file()
    except OSError as error:  # its folder can't be entered
        raise LaunchError.because(error, f"{HOSTS} can't be read") from error
    if has_hosts:
        yield HOSTS, _mapping(HOSTS, _yaml(HOSTS))
    if (user := _users_file(environment)) is not None:
        yield user, _mapping(user, _yaml(user))
    if (project := _projects_file(folder)) is not None:
        yield project, _mapping(project, _toml(project))


def _users_file(environment: Mapping[str, str]) -> Path | None:
    """The user's file, if there is one.

    Raises:
        LaunchError: the variable names a missing file.
    """
    if (named := environment.get(VARIABLE)) is not None:
        if named and not Path(named).is_file():
            raise LaunchError(f"{VARIABLE}={named}: there is no such file")
        return Path(named) if named else None
    root = environment.get("XDG_CONFIG_HOME")
    home = environment.get("HOME")
    base = Path(root) if root else Path(home) / ".config" if home else None
    file = None if base is None else base / "safe-launch" / "config.yaml"
    return file if file is not None and file.is_file() else None


def _projects_file(folder: Path) -> Path | None:
    """The nearest pyproject.toml, if it has safe-launch's table and a trusted owner.

    A parent folder may belong to anyone, such as /tmp.
    """
    for parent in (folder, *folder.parents):
        file = parent / "pyproject.toml"
        try:
            if not file.is_file():
                continue
            is_trusted = file.stat().st_uid in {os.geteuid(), 0, folder.stat().st_uid}
            return file if is_trusted and TABLE in regular_files.read(file) else None
        except OSError:
            return None
    return None


def _yaml(file: Path) -> object:
    import yaml

    try:
        document: object = yaml.safe_load(regular_files.read_text(file))
        check_aliases(document)
        return document
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise LaunchError(f"{file}{line}: not YAML: {error.problem}") from error
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise LaunchError.because(error, f"{file} can't be read") from error


def _toml(file: Path) -> object:
    import tomllib

    try:
        document = tomllib.loads(regular_files.read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise LaunchError.because(error, f"{file} can't be read") from error
    tools = document.get("tool")
    return tools.get("safe-launch") if isinstance(tools, dict) else None  # only in a comment


def _mapping(file: Path, document: object) -> Mapping[Any, Any]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        problem = f"{file}: a mapping of options to their values is expected"
        raise LaunchError(problem, "such as `tee: 3`")
    return document


def _words(
    options: Mapping[str, argparse.Action], file: Path, key: str, value: object
) -> Iterator[str]:
    """Converts an option to words of the command line.

    Raises:
        LaunchError: the option is unknown, or its value is invalid.
    """
    name = f"--{key.strip('-')}"
    name = name if name in options else name.replace("_", "-")
    option = options.get(name)
    if option is None:
        known = [spelling.removeprefix("--") for spelling in options if len(spelling) > 2]
        raise LaunchError(f"{file}: {key}: there is no such option", meant(key, known))
    if isinstance(value, bool) and option.choices and SWITCH[value] in option.choices:
        value = SWITCH[value]
    values: Sequence[object] = value if isinstance(value, list) else [value]
    problem = ""
    if option.dest in NO_DEFAULT:
        problem = "it belongs to a single launch"
    elif option.nargs == 0:
        problem = "" if isinstance(value, bool) else "true or false is expected"
    elif isinstance(value, list) and not isinstance(option, REPEATED):
        problem = "a single value is expected, as on the command line"
    elif not all(isinstance(item, str | int | float) for item in values) or isinstance(value, bool):
        problem = "a number or a text is expected"
    if problem:
        raise LaunchError(f"{file}: {key}: {problem}")
    if option.nargs == 0:
        yield from [name] * bool(value)
    else:
        yield from (f"{name}={each}" for each in values)
