"""The launcher's values as JSON values, and the values in JSON that came from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


def plain(value: object) -> Any:
    """A value as JSON, for `json.dumps(..., default=plain)`.

    json calls this only for unknown types, so its fast encoder does the rest.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return str(value)


def parsed(text: str | bytes, **how: Any) -> Any:
    """The values in a JSON text.

    Raises:
        ValueError: it isn't JSON, is nested too deeply, or has a number of thousands of digits.
    """
    try:
        return json.loads(text, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
