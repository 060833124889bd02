"""Writes a script from the description of its interface, for the launcher's readers to read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HEAD = """import argparse
import os
from dataclasses import dataclass, field
from typing import List, Optional, Tuple
"""
UNKNOWN = "..."
"""Stands for a default that is computed, or that must be given."""


def write_script(path: Path, description: Mapping[str, Any]) -> None:
    """Writes the script, with a parser of the described options in front of its calls.

    Args:
        path: of the script.
        description: its `options`, or the `parser` and its `classes`; `deepspeed` where DeepSpeed
            adds its own; `source`, which imports and calls.
    """
    imports, _, calls = description["source"].partition("\n\n")
    parser = _classes(description) if "parser" in description else _options(description)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEAD + imports, *parser, calls]), encoding="utf-8")


def _classes(description: Mapping[str, Any]) -> Iterator[str]:
    """Dataclasses, and their values under names like `model_args`."""
    names = []
    for head, fields in description["classes"].items():
        name = head.partition("(")[0]
        names.append(name)
        if not fields and "(" not in head:
            continue  # the library's
        yield f"@dataclass\nclass {head}:"
        yield from (
            f"    {each}: {kind}{_default(value)}" for each, (kind, value) in fields.items()
        )
        yield "    pass"
    yield f"parser = {description['parser']}(({', '.join(names)},))"
    parse = "parse_args_and_config" if description["parser"] == "TrlParser" else ""
    held = ", ".join(map(_holder, names))
    yield f"({held},) = parser.{parse or 'parse_args_into_dataclasses'}()"


def _holder(name: str) -> str:
    """The name of what a class's options are parsed into: `data_args` for DataArguments."""
    words = re.findall("[A-Z]+(?![a-z])|[A-Z][a-z]+", re.sub("(Arguments|Args|Config)$", "", name))
    return f"{words[0].lower()}_args"


def _default(value: object) -> str:
    if value == UNKNOWN:
        return ""
    mutable = isinstance(value, list | dict)
    return f" = field({'default_factory=lambda: ' if mutable else 'default='}{value!r})"


def _options(description: Mapping[str, Any]) -> Iterator[str]:
    yield "parser = argparse.ArgumentParser()"
    for names, words in description["options"].items():
        said = [", ".join(map(repr, names.split())), *map(_word, words.items())]
        yield f"parser.add_argument({', '.join(said)})"
    if description.get("deepspeed"):
        yield "parser = deepspeed.add_config_arguments(parser)"
    yield "args = parser.parse_args()"


def _word(item: tuple[str, object]) -> str:
    name, value = item
    return f"{name}={value if name == 'type' else repr(value)}"


def write_file(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a configuration file, as its name says: JSON or YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_json = path.suffix == ".json"
    text = json.dumps(content) if is_json else yaml.safe_dump(dict(content), sort_keys=False)
    path.write_text(text, encoding="utf-8")
