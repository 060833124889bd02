"""Requirements on the nodes of a job, and the plan's hardware if they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.errors import ExitCode
from ..core.hardware import Hardware, common_device
from ..core.request import Limits
from ..options.plan_options import NEVER_CHANGE, unchanged_once
from .joining import Join, Refusal, Unable

COMPARED = {"safe-launch": None, "torch": 2, "deepspeed": 2, "torch_npu": 2}
"""Parts of a version that must be equal: all if messages between launchers may change, major and
minor if these decide which collectives are called."""


def of_another_job(node: Join | Unable, job: str) -> Refusal | None:
    """Refuses a launcher of another job, without this job's id; None for one of this job."""
    if node.job == job:
        return None
    problem = f"{node.host} is of another job: its run id {node.job!r} isn't node 0's"
    return Refusal(ExitCode.USAGE, problem, "give all nodes one --rdzv-id, or another port")


def misplaced(node: Join | Unable, job: str, nodes: int) -> Refusal | None:
    """Why a launcher isn't one of this job's other nodes; None if it is."""
    if (another := of_another_job(node, job)) is not None:
        return another
    if node.rank is not None and not 0 < node.rank < nodes:
        problem = f"{node.host} says that it is node {node.rank}, and node 0 expects nodes 1 to"
        hint = "--nnodes and --node-rank must fit together on every node"
        return Refusal(ExitCode.USAGE, f"{problem} {nodes - 1}", hint)
    return None


def refusal(node: Join | Unable, head: Join, nodes: int) -> Refusal | None:
    """Why a launcher can't take part in the job; None if it can."""
    if (outside := misplaced(node, head.job, nodes)) is not None:
        return outside
    if isinstance(node, Unable):
        return Refusal(node.code, f"{node.host} can't take part: {node.problem}", node.hint)
    for name, parts in COMPARED.items():
        versions = [joined.versions.get(name, "") for joined in (node, head)]
        here, there = (re.split(r"[.+]", version)[:parts] for version in versions)
        if here != there:
            texts = [version or "absent" for version in versions]
            problem = f"{name} is {texts[0]} on {node.host} and {texts[1]} on {head.host}"
            return Refusal(ExitCode.USAGE, problem, "install the same on every node")
    kind, head_kind = node.hardware.accelerator.kind, head.hardware.accelerator.kind
    if kind != head_kind:
        problem = f"{node.host} trains on {kind} and {head.host} on {head_kind}"
        hint = "give the job nodes of one kind"
        return Refusal(ExitCode.USAGE, f"{problem}: they can't exchange tensors", hint)
    return None


def differences(joins: Sequence[Join]) -> tuple[str, ...]:
    """Sentences on differences between the nodes that don't prevent a training."""
    head = joins[0]
    names = sorted({name for node in joins for name in node.versions})
    versions = {
        name: _differing({node.host: node.versions.get(name, "absent") for node in joins})
        for name in names
    }
    notes = [f"{name} differs between the nodes: {text}" for name, text in versions.items() if text]
    if others := [node.host for node in joins if node.script != head.script]:
        notes.append(f"the script on {first_hosts(others)} isn't the one on {head.host}")
    if others := [node.host for node in joins if node.arguments != head.arguments]:
        notes.append(
            f"the script's arguments on {first_hosts(others)} aren't those on {head.host}; "
            "the plan is made from the latter"
        )
    if text := _differing({node.host: node.nnodes for node in joins}):
        notes.append(f"--nnodes differs between the nodes: {text}; node 0's holds")
    if text := _differing({node.host: str(node.nproc) for node in joins}):
        notes.append(f"the number of workers differs between the nodes: {text}")
    return tuple(notes)


def _differing(values: Mapping[str, str]) -> str:
    """Each value with some of its hosts; empty if all nodes have the same."""
    hosts: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts.setdefault(value, []).append(host)
    if len(hosts) == 1:
        return ""
    return "; ".join(f"{value} on {first_hosts(group)}" for value, group in hosts.items())


def first_hosts(hosts: Sequence[str]) -> str:
    """The first three hosts, and the number of the others."""
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    return ", ".join(hosts[:3]) + more


def common_hardware(joins: Sequence[Join]) -> Hardware:
    """The least that every node has, as the hardware of a single node."""
    every = [node.hardware for node in joins]
    names = list(dict.fromkeys(hardware.accelerator.name for hardware in every))
    notes = list(dict.fromkeys(note for hardware in every for note in hardware.notes))
    if len(names) > 1:
        notes.append(f"the nodes' devices differ ({', '.join(names)}): planned for the least")
    return replace(
        every[0],
        accelerator=common_device([hardware.accelerator for hardware in every]),
        accelerators=min(hardware.accelerators for hardware in every),
        cores=min(hardware.cores for hardware in every),
        host_memory=min(hardware.host_memory for hardware in every),
        in_use=max(hardware.in_use for hardware in every),
        notes=tuple(notes),
    )


def never_changed_by(limits: Limits, others: Sequence[Join]) -> Limits:
    """Node 0's limits with the settings that other nodes forbid to change, each by its host."""
    settings = (
        tuple((setting, f"{NEVER_CHANGE} on {node.host}") for setting in node.never_changed)
        for node in others
    )
    return replace(limits, never_changed=unchanged_once((limits.never_changed, *settings)))


def in_rank_order(joins: Sequence[Join]) -> tuple[int, ...]:
    """The nodes in the order of their ranks, as indices of `joins`: node 0 first.

    Nodes without a rank take the free ranks, by host name; numbers in names sort as numbers.
    """

    def key(place: int) -> tuple[bool, int, list[tuple[bool, int, str]]]:
        node = joins[place]
        parts = [
            (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
            for part in re.split(r"(\d+)", node.host)
        ]
        return node.rank is None, node.rank or 0, parts

    return (0, *sorted(range(1, len(joins)), key=key))
