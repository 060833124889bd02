"""YAML and JSON read as types, with errors that name the file, the line and the key."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from ..core.errors import LaunchError, Refused, reason_of
from ..core.nearest import near
from ..core.plain_json import parsed
from ..core.secrets import in_mapping
from . import redaction, regular_files

Schema = TypeVar("Schema")
DEEPEST = 5000
"""Levels of YAML at most; libyaml's recursion crashes at some ten thousands."""
MOST = 1_000_000
"""Values of a document at most, with its aliases written out."""
MISSING = "???"
"""Marks a required field as its default."""


class DocumentError(LaunchError):
    """A YAML document that doesn't follow its schema."""

    def __init__(self, path: Path, line: int, problem: str, hint: str = "") -> None:
        super().__init__(f"{path}:{line}: {problem}", hint)


def read_document(path: Path, text: str, schema: type[Schema], first_line: int = 1) -> Schema:
    """The YAML `text` of the file `path` as an instance of the dataclass `schema`.

    The fields of the schema are the keys, without a trailing underscore, for Python's keywords. The
    text begins at `first_line` of the file.

    Raises:
        DocumentError: not YAML, not a mapping, an unknown key, a value of the wrong type, or a
            missing value.
    """
    import msgspec
    import yaml

    try:
        check_depth(text)
        raw = yaml.load(text, _loader())
        check_aliases(raw)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = first_line + (0 if mark is None else mark.line)
        raise DocumentError(path, line, f"not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(path, first_line, f"not YAML: {reason_of(error)}") from error
    if not isinstance(raw, dict):
        raise DocumentError(path, first_line, "a mapping of keys to values is expected")
    known = {field.name.removesuffix("_"): field for field in fields(schema)}  # type: ignore[arg-type]
    kinds = _types(schema)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known:
            line = line_of(str(key), text, first_line)
            raise DocumentError(path, line, f"unknown key `{key!s}`", near(key, list(known)))
        name = known[key].name
        try:
            values[name] = msgspec.convert(value, kinds[name])
        except (msgspec.ValidationError, RecursionError) as error:
            reason = reason_of(error).partition(" - at ")[0]
            problem = reason[:1].lower() + reason[1:]
            line = line_of(str(key), text, first_line)
            hint = "put quotes around it" if problem.startswith("expected `str`") else ""
            raise DocumentError(path, line, f"`{key!s}`: {problem}", hint) from error
    for key, field in known.items():
        if field.name not in values and field.default == MISSING:
            raise DocumentError(path, first_line, f"`{key}` is missing")
    return schema(**values)


def check_depth(text: str) -> None:
    """Checks that YAML isn't nested so deeply that its loader in C ends the process.

    Raises:
        ValueError: it is.
    """
    import yaml

    if len(text) <= DEEPEST:
        return  # it can't be
    depth = 0
    for event in yaml.parse(text, _loader()):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")


def check_aliases(value: object) -> None:
    """Checks that a YAML value ends, and isn't huge once its aliases are written out.

    A walk over it would meet each alias's content again and again.

    Raises:
        ValueError: it doesn't, or is.
    """
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(value: object) -> int:
        if not isinstance(value, dict | list):
            return 1
        if id(value) in open_:
            raise ValueError("an alias contains itself")
        if id(value) not in sizes:
            open_.add(id(value))
            members = value.values() if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(map(size, members))
            open_.discard(id(value))
        if sizes[id(value)] > MOST:
            raise ValueError(f"its aliases expand to more than {MOST:,} values")
        return sizes[id(value)]

    size(value)


@cache
def _types(schema: type[Any]) -> dict[str, Any]:
    """The types of a schema's fields, by name."""
    return get_type_hints(schema)


@cache
def _loader() -> Any:
    """YAML's safe loader, in C if available, which refuses duplicate keys."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, *, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for place, (key, _) in enumerate(node.value):
                if keys[place] in keys[:place]:
                    problem = f"found duplicate key {keys[place]}"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            return super().construct_mapping(node, deep=deep)

    return Loader


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON or YAML file of arguments, as the user's framework would read it.

    Raises:
        LaunchError: the file doesn't exist or isn't a mapping; the message names the line.
    """
    import yaml

    try:
        text = regular_files.read_text(path)
        if path.suffix != ".json":  # JSON that is indented with tabs isn't YAML
            check_depth(text)
        value = parsed(text) if path.suffix == ".json" else yaml.safe_load(text)
        check_aliases(value)
    except FileNotFoundError:
        raise LaunchError(f"there is no file of arguments `{path}`") from None
    except json.JSONDecodeError as error:
        raise DocumentError(path, error.lineno, f"not JSON: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise DocumentError(path, line, f"can't be read: {error.problem}") from error
    except RecursionError as error:
        raise DocumentError(path, 1, "can't be read: it is nested too deeply") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise LaunchError.because(error, f"{path} can't be read") from error
    if not isinstance(value, dict):
        raise DocumentError(path, 1, "a mapping of arguments is expected")
    redaction.learn(in_mapping(value))
    return value


def line_of(key: str, text: str, first_line: int) -> int:
    """The line with a key; the first line if it can't be found."""
    for number, line in enumerate(text.splitlines()):
        if key and re.match(rf"[\s\-]*{re.escape(key)}\s*:", line):
            return first_line + number
    return first_line


def read_json(path: Path, kind: type[Schema]) -> Schema | Refused:
    """The content of a JSON file of a run directory, or why it can't be read."""
    import msgspec

    try:
        return msgspec.json.decode(regular_files.read(path), type=kind)
    except OSError as error:
        return Refused(f"{path} can't be read: {reason_of(error)}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refused(f"{path} isn't of this version of safe-launch, or is cut off")
