"""The base of all messages between launchers, and whether their fields are within their limits.

The types of the fields state the limits (`core.limits`). msgspec checks the types when it converts
a message; the limits are checked afterwards, for every sender.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

from msgspec import Struct

from ..core.errors import ExitCode
from ..core.limits import BYTES, NODES, Limit, number, pattern
from ..core.quantities import count_of
from ..system.signals import ENDING

SMALL, ORDINARY, LARGE = 1 << 16, 1 << 18, 1 << 24
"""Bytes at most: of a message about a launcher, of most, of one with thousands of records."""
FAILURES = frozenset(int(code) for code in ExitCode if code)
"""Exit codes of a launcher that can't take part."""
FailureCode = Annotated[int, Limit("a code of a launcher's failure", lambda code: code in FAILURES)]
StopSignal = Annotated[int, Limit("a signal that stops a run", lambda number: number in ENDING)]
Digest = Annotated[str, pattern("|[0-9a-f]{64}", "a digest")]
RunId = Annotated[str, pattern(r"\d{8}-\d{6}-[0-9a-f]{6}", "a run's id")]
"""The format of `run_directory.new_id`."""
NodeCount = Annotated[int, number(1, NODES)]
NodeRank = Annotated[int, number(0, NODES - 1)]
OtherNode = Annotated[int, number(1, NODES - 1)]
OUTSIDE = "the rank is of one of the nodes"
_SHOWN = 60
"""Characters of a wrong value that are shown."""
_NUMBER = number(-BYTES, BYTES)
"""The limit of any other number."""
_UNLIMITED = (str, bool, tuple[str, ...], ClassVar[int])
"""Types of which every value is allowed, and that of class variables."""


class Sent(Struct, frozen=True):
    """A message between launchers, of at most `MOST` bytes."""

    MOST: ClassVar[int] = ORDINARY

    @property
    def reported(self) -> set[int | None]:
        """The ranks of its records, standings and progress."""
        parts = (getattr(self, name, ()) for name in ("records", "standings", "progress"))
        return {row.rank for part in parts for row in part}

    def contradiction(self) -> str:
        """The rule that several of its fields break together, as a clause; empty if none."""
        return ""


@cache
def largest(allowed: UnionType) -> int:
    """Bytes of the largest of several types of messages."""
    kinds: tuple[type[Sent], ...] = get_args(allowed)
    return max(kind.MOST for kind in kinds)


def problem_of(message: Sent, size: int = 0) -> str | None:
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
        if not _NUMBER.allows(value):
            yield f"{name}: {_shown(value)} isn't {_NUMBER.words}"
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
    return {name: _limit(hint) for name, hint in hints.items() if hint not in _UNLIMITED}


def _limit(hint: Any) -> Limit | None:
    """The limit of an annotated type, also of an optional one."""
    kinds = (hint, *get_args(hint))
    stated = (entry for kind in kinds for entry in getattr(kind, "__metadata__", ()))
    return next((entry for entry in stated if isinstance(entry, Limit)), None)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
