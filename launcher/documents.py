"""YAML read against typed schemas, with errors that name the file, the line and the key."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from .exit_code import ExitCode, LaunchError

Schema = TypeVar("Schema")
OTHER_THAN_TEXT = ("bool", "int", "float", "list", "dict")
"""Types of fields that a text isn't one of, though `${...}` passes for any type."""


class DocumentError(LaunchError):
    """A YAML document that doesn't follow its schema."""

    def __init__(self, path: Path, line: int, problem: str, hint: str = "") -> None:
        super().__init__(ExitCode.USAGE, f"{path}:{line}: {problem}", hint)


def read_document(path: Path, text: str, schema: type[Schema], first_line: int = 1) -> Schema:
    """The YAML `text` of the file `path` as an instance of the dataclass `schema`.

    Values are taken literally: `${...}` isn't interpolated, since patterns may contain it.

    Args:
        path: the file, for messages.
        text: YAML, a mapping.
        schema: dataclass whose fields are the keys; a trailing underscore of a field's name, for
            names that Python keeps to itself, isn't part of the key.
        first_line: number of the text's first line in the file.

    Raises:
        DocumentError: not YAML, not a mapping, an unknown key, a value of the wrong type, or a
            missing value.
    """
    import yaml
    from omegaconf import MISSING, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        raw = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = first_line + (0 if mark is None else mark.line)
        raise DocumentError(path, line, f"not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise DocumentError(path, first_line, f"not YAML: {problem}") from error
    if not isinstance(raw, dict):
        raise DocumentError(path, first_line, "a mapping of keys to values is expected")
    keys = {field.name.removesuffix("_"): field.name for field in fields(schema)}  # type: ignore[arg-type]
    kinds = {field.name: str(field.type) for field in fields(schema)}  # type: ignore[arg-type]
    for key in raw:
        if key not in keys:
            raise DocumentError(
                path,
                line_of(str(key), text, first_line),
                f"unknown key `{key!s}`",
                near(key, list(keys)),
            )
    typed = OmegaConf.structured(schema)
    refusals = (OmegaConfBaseException, OverflowError, TypeError)
    try:
        merged = OmegaConf.merge(typed, {keys[str(key)]: value for key, value in raw.items()})
        plain: Any = OmegaConf.to_container(merged, resolve=False)
    except refusals as error:
        # The error itself doesn't always name the key; alone, the guilty one fails again.
        problem = str(error).splitlines()[0]
        for key, value in raw.items():
            try:
                OmegaConf.merge(typed, {keys[str(key)]: value})
            except refusals:
                break
        line = line_of(str(key), text, first_line)
        raise DocumentError(path, line, f"`{key!s}`: {problem}") from error
    for key, name in keys.items():
        if plain[name] == MISSING:
            raise DocumentError(path, first_line, f"`{key}` is missing")
        if isinstance(plain[name], str) and kinds[name].startswith(OTHER_THAN_TEXT):
            line = line_of(key, text, first_line)
            raise DocumentError(path, line, f"`{key}`: {plain[name]!r} isn't a {kinds[name]}")
    return schema(**plain)


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON or YAML file of arguments, as the user's framework would read it.

    Raises:
        LaunchError: the file doesn't exist or isn't a mapping; the message names the line.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        # Indented with tabs, JSON isn't YAML.
        value = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except FileNotFoundError:
        raise LaunchError(ExitCode.USAGE, f"there is no file of arguments {path}") from None
    except json.JSONDecodeError as error:
        raise DocumentError(path, error.lineno, f"not JSON: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise DocumentError(path, line, f"can't be read: {error.problem}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LaunchError(ExitCode.USAGE, f"{path} can't be read: {error}") from error
    if not isinstance(value, dict):
        raise DocumentError(path, 1, "a mapping of arguments is expected")
    return value


def near(word: object, known: Any) -> str:
    """A did-you-mean hint for a misspelt word."""
    close = difflib.get_close_matches(str(word), [str(one) for one in known], n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known are {', '.join(sorted(str(one) for one in known))}"


def line_of(key: str, text: str, first_line: int) -> int:
    """The line on which a key stands; the first where it can't be found."""
    for number, line in enumerate(text.splitlines()):
        if key and re.match(rf"[\s\-]*{re.escape(key)}\s*:", line):
            return first_line + number
    return first_line
