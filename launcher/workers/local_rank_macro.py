"""What stands for a worker's local rank in its script's arguments, as torchrun has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

LOCAL_RANK = "${local_rank}"
VARIABLE = "SAFE_LAUNCH_LOCAL_RANK"
"""The local rank where LOCAL_RANK is another device's number: under --virtual-local-rank."""


def filled(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A worker's arguments; as in torchrun's, `$$` is a dollar sign.

    Args:
        arguments: those of all workers.
        environment: the worker's.
    """
    local = environment.get(VARIABLE, environment["LOCAL_RANK"])
    return [Template(argument).safe_substitute(local_rank=local) for argument in arguments]
