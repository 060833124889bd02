"""The placeholder for a worker's local rank in its script's arguments, as in torchrun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

VARIABLE = "SAFE_LAUNCH_LOCAL_RANK"
"""The worker's real local rank: under --virtual-local-rank LOCAL_RANK is 0."""


def filled(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A worker's arguments with the placeholder filled in; `$$` is a dollar sign."""
    local = environment.get(VARIABLE, environment["LOCAL_RANK"])
    return [Template(argument).safe_substitute(local_rank=local) for argument in arguments]
