"""What one source reports of the nodes of a job, before the sources are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..core.errors import ExitCode, LaunchError


@dataclass(frozen=True, slots=True)
class Reported:
    """What a scheduler, a platform or a person states; None or empty where nothing is stated.

    Attributes:
        by: who says it, in words.
        nodes: the least and the greatest number of launchers.
        rank: of this launcher.
        is_head: whether this launcher is node 0, where no rank is given.
        address: name or address of node 0.
        port: where node 0 listens.
        job: what the launchers of this job have in common and no others.
        local: index of this launcher among those on its host.
        beside: launchers of the job on this host, this one included.
        nproc: workers of this launcher at most.
        has_tasks: whether there is a task for every worker or every few, so that `nproc` is exact.
        origins: where each of these was read, by its name here.
        refusal: why no launch over several nodes can begin here, unless the user says how many.
    """

    by: str
    nodes: tuple[int, int] | None = None
    rank: int | None = None
    is_head: bool | None = None
    address: str = ""
    port: int | None = None
    job: str = ""
    local: int = 0
    beside: int = 1
    nproc: int | None = None
    has_tasks: bool = False
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    refusal: LaunchError | None = None

    def origin(self, name: str) -> str:
        """Where one of these was read."""
        return self.origins.get(name, self.by)


def number(environment: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """A whole number in a variable; None where it isn't set.

    Raises:
        LaunchError: it holds something else.
    """
    text = environment.get(name, "").strip()
    return whole(text, name, least) if text else None


def whole(text: str, name: str, least: int = 0) -> int:
    """A whole number that is written in an option or a variable.

    Raises:
        LaunchError: it is none, or less than the least that has a meaning.
    """
    if not text.isascii() or not text.isdigit():
        raise LaunchError(ExitCode.USAGE, f"{name} {text!r} isn't a whole number")
    if int(text) < least:
        raise LaunchError(ExitCode.USAGE, f"{name} {text}: it must be at least {least}")
    return int(text)


def port(text: str, name: str) -> int:
    """A port to listen on.

    Raises:
        LaunchError: it is no port.
    """
    value = whole(text, name)
    if not 0 < value < 2**16:
        raise LaunchError(ExitCode.USAGE, f"{name} {text}: a port is between 1 and 65535")
    return value
