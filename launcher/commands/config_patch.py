"""Changes a value in YAML or JSON; everything else, comments too, stays as it was written."""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml

from ..core.errors import Refused, reason_of


def patched(text: str, key: str, value: object) -> str | Refused:
    """A text in JSON or YAML with another value of a key, which is added if it is missing.

    The key has dots between levels. Refused if the text can't be changed safely.
    """
    # YAML allows no tabs between the tokens of JSON. The replacement has the same length.
    plain = text.replace("\t", " ")
    try:
        node = yaml.compose(plain, yaml.SafeLoader)
        before = _read(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return Refused(f"it is neither JSON nor YAML: {reason_of(error)}")
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(plain, yaml.SafeLoader)):
        return Refused("it has aliases, so that a value may belong to several keys")
    parts = key.split(".")
    place = node
    while parts and isinstance(place, yaml.MappingNode):
        values = [value for name, value in place.value if name.value == parts[0]]
        if not values:
            break
        place, parts = values[-1], parts[1:]  # the last of several, as in JSON
    if parts and isinstance(place, yaml.MappingNode):
        nested: object = value
        for part in reversed(parts[1:]):
            nested = {part: nested}
        text = _with_item(text, place, parts[0], nested)
    elif not parts and isinstance(place, yaml.ScalarNode) and place.style not in ("|", ">"):
        begin, end = place.start_mark.index, place.end_mark.index
        text = text[:begin] + json.dumps(value) + text[end:]
    else:
        return Refused(f"`{key}` isn't a single value there")
    try:
        after = _read(text)
    except (yaml.YAMLError, ValueError):
        after = None
    if after != _with_value(before, key.split("."), value):
        return Refused(f"`{key}` is written in a way that can't be changed safely")
    return text


def _read(text: str) -> Any:
    """The document, read as JSON if it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


def _with_value(document: Any, keys: list[str], value: object) -> Any:
    changed = copy.deepcopy(document)
    within = changed
    for key in keys[:-1]:
        within = within.setdefault(key, {})
    within[keys[-1]] = value
    return changed


def _with_item(text: str, mapping: yaml.MappingNode, key: str, value: object) -> str:
    """A further item: the first of a block, or the last between braces."""
    if not mapping.flow_style:
        place = mapping.start_mark.index
        indent = " " * mapping.start_mark.column
        return f"{text[:place]}{key}: {json.dumps(value)}\n{indent}{text[place:]}"
    item = f"{json.dumps(key)}: {json.dumps(value)}"
    if not mapping.value:
        place = mapping.start_mark.index + 1
        return text[:place] + item + text[place:]
    last_key, last_value = mapping.value[-1]
    place = last_value.end_mark.index
    line = text.rfind("\n", 0, last_key.start_mark.index) + 1
    indent = text[line : last_key.start_mark.index]
    is_on_line = mapping.start_mark.index < line and not indent.strip()
    between = f",\n{indent}" if is_on_line else ", "
    return text[:place] + between + item + text[place:]
