"""Whether a message's fields are within the limits that their types state (`core.limits`).

msgspec checks the types when it converts a message; the limits are checked afterwards, for every
sender.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, ClassVar, get_args, get_type_hints

from ..core.limits import BYTES, Limit, number
from ..core.quantities import count_of
from .messages import Message
from .sent import Sent

SHOWN = 60
"""Characters of a wrong value that are shown."""
NUMBER = number(-BYTES, BYTES)
"""The limit of any other number."""
UNLIMITED = (str, bool, tuple[str, ...], ClassVar[int])
"""Types of which every value is allowed, and that of class variables."""


@cache
def largest(allowed: UnionType) -> int:
    """Bytes of the largest of several types of messages."""
    kinds: tuple[type[Sent], ...] = get_args(allowed)
    return max(kind.MOST for kind in kinds)


def problem(message: Message, size: int = 0) -> str | None:
    """The first field beyond its limits, with the limits; None if all are within."""
    if size > message.MOST:
        kind = type(message).__name__
        return f"{kind} of {count_of(size, 'byte')}, and {message.MOST:,} are allowed"
    return next(_problems(message, type(message).__name__), None)


def _problems(value: object, name: str) -> Iterator[str]:
    if isinstance(value, tuple | frozenset):
        for member in value:
            yield from _problems(member, name)
    elif isinstance(value, int | float):
        if not NUMBER.allows(value):
            yield f"{name}: {_shown(value)} isn't {NUMBER.words}"
    else:
        kind: type = type(value)
        for field, limit in _limits(kind).items():
            content = getattr(value, field)
            if limit is None:
                yield from _problems(content, f"{name}.{field}")
            elif content is not None and not limit.allows(content):
                yield f"{name}.{field}: {_shown(content)} isn't {limit.words}"
        if isinstance(value, Sent) and (broken := value.contradiction()):
            yield f"{name}: it doesn't hold that {broken}"


@cache
def _limits(kind: type) -> Mapping[str, Limit | None]:
    """The limit of each field of a message, or of a value in one; None if its members have limits.

    Fields that can't be beyond any limit are left out.
    """
    if not (is_dataclass(kind) or issubclass(kind, Sent)):
        return {}
    hints = get_type_hints(kind, include_extras=True)
    return {name: _limit(hint) for name, hint in hints.items() if hint not in UNLIMITED}


def _limit(hint: Any) -> Limit | None:
    """The limit of an annotated type, also of an optional one."""
    kinds = (hint, *get_args(hint))
    stated = (entry for kind in kinds for entry in getattr(kind, "__metadata__", ()))
    return next((entry for entry in stated if isinstance(entry, Limit)), None)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
