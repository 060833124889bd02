"""A source's statements about a job's nodes, before merging sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..core.errors import LaunchError

DIGITS = 18
"""Maximum digits of an integer; Slurm's largest have ten."""
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Stated(Generic[Value]):
    """A value with its source, in words."""

    value: Value
    source: str


def stated(value: Value | None, source: str) -> Stated[Value] | None:
    """A value with its source; None without a value, or if it is empty."""
    return None if value in (None, "") else Stated(value, source)


@dataclass(frozen=True, slots=True)
class Reported:
    """Statements of a scheduler, a platform or a person; None or empty if unstated.

    Attributes:
        by: the source, in words.
        nodes: minimum and maximum number of launchers.
        is_head: whether this launcher is node 0, without a rank.
        owns_address: whether node 0's address is this host's, if neither of these is given.
        address: name or address of node 0.
        hosts: the nodes' names by rank.
        job: an id shared only by this job's launchers.
        local: index of this launcher among those on its host.
        beside: number of the job's launchers on this host, including this one.
        nproc: maximum workers of this launcher.
        has_tasks: whether each task has one or a few workers, so `nproc` is exact.
        refusal: reason against a launch on several nodes, unless the user states their number.
    """

    by: str
    nodes: Stated[tuple[int, int]] | None = None
    rank: Stated[int] | None = None
    is_head: bool | None = None
    owns_address: bool = False
    address: Stated[str] | None = None
    port: Stated[int] | None = None
    hosts: tuple[str, ...] = ()
    job: Stated[str] | None = None
    local: int = 0
    beside: int = 1
    nproc: Stated[int] | None = None
    has_tasks: bool = False
    refusal: LaunchError | None = None


def number(environment: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """Reads an integer from a variable; None if unset.

    Raises:
        LaunchError: the value is invalid.
    """
    text = environment.get(name, "").strip()
    return whole(text, name, least) if text else None


def whole(text: str, name: str, least: int = 0) -> int:
    """Parses an integer from an option or a variable.

    Raises:
        LaunchError: the text isn't an integer, is below `least`, or has more than `DIGITS`.
    """
    if not text.isascii() or not text.isdigit():
        raise LaunchError(f"{name} {text!r} isn't a whole number")
    if len(text) > DIGITS:
        raise LaunchError(f"{name} {text[:DIGITS]}...: it is too large")
    if int(text) < least:
        raise LaunchError(f"{name} {text}: it must be at least {least}")
    return int(text)


def port(text: str, name: str) -> int:
    """Parses a port number.

    Raises:
        LaunchError: the number isn't between 1 and 65535.
    """
    value = whole(text, name)
    if not 0 < value < 2**16:
        raise LaunchError(f"{name} {text}: a port is between 1 and 65535")
    return value
