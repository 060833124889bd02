"""Binds workers to cores: torch's way near their GPUs, deepspeed's by shares."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence

from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.quantities import count_of
from ..frameworks.installed import package_folders
from ..machine import host

BINDINGS = ("node", "socket", "exclusive", "core-complex")
"""torch's modes (torch/numa/binding.py, AffinityMode)."""


def refuse_numa(mode: str, gpus: int) -> None:
    """Refuses torch's binding if this host lacks a requirement.

    Raises:
        LaunchError: it does.
    """
    if not any((folder / "numa" / "binding.py").is_file() for folder in package_folders("torch")):
        problem = f"--numa-binding {mode}: the installed torch can't do it"
        raise LaunchError(problem, "it came with torch 2.9")
    if not gpus:
        problem = f"--numa-binding {mode} binds workers near their GPUs, and none was found"
        raise LaunchError(problem, "--bind_cores_to_rank shares cores without one")
    if shutil.which("numactl") is None:
        problem = f"--numa-binding {mode} needs numactl, which isn't installed"
        raise LaunchError(problem, "apt install numactl")


def cores_of(
    options: argparse.Namespace,
    nproc: int,
    environment: Mapping[str, str],
    elsewhere: Hardware | None,
) -> tuple[tuple[int, ...], ...]:
    """The cores of each worker; empty without binding.

    Raises:
        LaunchError: there are too few cores.
    """
    if not options.bind_cores_to_rank:
        return ()
    if "KMP_AFFINITY" in environment:
        problem = "--bind_cores_to_rank and KMP_AFFINITY both bind threads to cores"
        raise LaunchError(problem, "unset KMP_AFFINITY")
    available = host.physical_cores() if elsewhere is None else tuple(range(elsewhere.cores))
    allowed = os.sched_getaffinity(0) if elsewhere is None else available
    missing = [core for core in options.bind_core_list or () if core not in allowed]
    if missing:
        whose = "this process may use" if elsewhere is None else f"there are ({elsewhere.source})"
        raise LaunchError(f"--bind_core_list: core {missing[0]} isn't among those that {whose}")
    listed = options.bind_core_list or available
    if len(listed) < nproc:
        cores = count_of(len(listed), "core")
        problem = f"--bind_cores_to_rank: {count_of(nproc, 'worker')} can't share {cores}"
        raise LaunchError(problem, "each needs at least one")
    return shared(listed, nproc)


def shared(cores: Sequence[int], workers: int) -> tuple[tuple[int, ...], ...]:
    """Divides cores equally among workers, in order, leaving out the remainder, like deepspeed.

    Empty for every worker if there are fewer cores than workers.
    """
    share = len(cores) // workers
    return tuple(tuple(cores[place * share : (place + 1) * share]) for place in range(workers))


def core_list(text: str) -> tuple[int, ...]:
    """Parses --bind_core_list: `0-3,8` to ascending cores without duplicates.

    Raises:
        LaunchError: the list is invalid.
    """
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        is_span = first.isascii() and first.isdigit() and (not dash or last.isdigit())
        span = range(int(first), int(last or first) + 1) if is_span else ()
        if not span or (cores and span[0] <= cores[-1]):
            problem = f"--bind_core_list {text}: numbers and spans in ascending order are needed"
            raise LaunchError(problem, "as in 0-3,8")
        cores += span
    return tuple(cores)
