"""Reads the profiles of accelerators and nodes, `hardware/**/*.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..core.choices import Precision
from ..core.errors import LaunchError
from ..core.hardware import Accelerator
from ..core.nearest import near
from ..core.quantities import GIB, MIB
from ..system.regular_files import text_of
from ..system.typed_files import DocumentError, line_of, read_document

KINDS = ("cpu", "cuda", "npu", "rocm", "unknown")
TOO_MUCH = 1e9
"""Upper limit of numbers in a profile, in any unit."""
TOLERANCE = 0.1
"""Relative tolerance between a device's and its profile's memory."""


@dataclass(frozen=True)
class Profile:
    """Facts of a device from its file; docs/using/hardware.md explains each.

    Attributes:
        name: its name; equals the file's name in shipped profiles.
        kind: cpu, cuda, npu, rocm or unknown.
        aliases: patterns of its names in the vendor's tools.
        called: other names by people and clouds, with their stated size.
        memory_gib: memory reported by the framework, in GiB; 0 for a CPU.
        driver_mib: memory reported by the vendor's tool, in MiB; distinguishes sizes of one name.
        context_gib: memory of the device's context and libraries, in GiB.
        communication_gib: memory of NCCL's, RCCL's or HCCL's buffers, in GiB.
        precisions: supported compute types.
        fp8: whether it has units for 8-bit floating point.
        compute_tflops: dense 16-bit TFLOP/s.
        bandwidth_gb_s: bandwidth of its memory, in GB/s.
        link_gb_s: bandwidth to another device of the node, in one direction, in GB/s.
        node_link_gb_s: bandwidth to a device of another node, in one direction, in GB/s.
        host_link_gb_s: bandwidth to the host's memory, in one direction, in GB/s.
        environment: variables for its workers, unless set by the user.
        restrictions: known limitations, as sentences.
        sources: the sources of the facts.
    """

    name: str = "???"
    kind: str = "???"
    aliases: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    memory_gib: float = -1.0
    driver_mib: int = 0
    context_gib: float = -1.0
    communication_gib: float = -1.0
    precisions: list[str] = field(default_factory=list)
    fp8: bool = False
    compute_tflops: float = -1.0
    bandwidth_gb_s: float = -1.0
    link_gb_s: float = -1.0
    node_link_gb_s: float = -1.0
    host_link_gb_s: float = -1.0
    environment: dict[str, str] = field(default_factory=dict)
    restrictions: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Node:
    """A host's accelerators, cores and memory; `called` are clouds' names."""

    name: str = "???"
    called: list[str] = field(default_factory=list)
    accelerator: str = "???"
    accelerators: int = -1
    cores: int = -1
    host_memory_gib: float = -1.0
    sources: list[str] = field(default_factory=list)


AT_LEAST_ZERO = ("memory_gib", "context_gib", "communication_gib")
MORE_THAN_ZERO = (
    "compute_tflops",
    "bandwidth_gb_s",
    "link_gb_s",
    "node_link_gb_s",
    "host_link_gb_s",
    "accelerators",
    "cores",
    "host_memory_gib",
)


def read_profile(path: Path) -> Profile:
    """Reads a device's file.

    Raises:
        DocumentError: the file doesn't follow the schema; the message names file, line and key.
    """
    text = text_of(path)
    profile = read_document(path, text, Profile)
    _check_numbers(profile, path, text)
    if not profile.precisions:
        line = line_of("precisions", text, 1)
        raise DocumentError(path, line, "`precisions`: a device needs at least one")
    for key, values, known in (
        ("kind", [profile.kind], KINDS),
        ("precisions", profile.precisions, [str(precision.value) for precision in Precision]),
    ):
        for value in values:
            if value not in known:
                line = line_of(key, text, 1)
                raise DocumentError(path, line, f"`{key}`: {value!r}", near(value, known))
    for pattern in profile.aliases:
        try:
            re.compile(pattern)
        except re.error as error:
            line = line_of("aliases", text, 1)
            raise DocumentError(path, line, f"`aliases`: {pattern!r}: {error}") from None
    if profile.memory_gib == 0 and profile.kind not in ("cpu", "unknown"):
        line = line_of("memory_gib", text, 1)
        raise DocumentError(path, line, "`memory_gib`: only a CPU has no memory of its own")
    return profile


def is_file(path: Path) -> bool:
    """Whether a path is a file; False for invalid names."""
    try:
        return path.is_file()
    except OSError:  # too long a name
        return False


def _check_numbers(document: Profile | Node, path: Path, text: str) -> None:
    for key in (*AT_LEAST_ZERO, *MORE_THAN_ZERO):
        value = getattr(document, key, None)
        if value is None:
            continue
        line = line_of(key, text, 1)
        if value == -1:
            raise DocumentError(path, line, f"`{key}` is missing")
        if not 0 <= value < TOO_MUCH or (value == 0 and key in MORE_THAN_ZERO):
            raise DocumentError(path, line, f"`{key}`: {value} isn't possible")


def read_node(path: Path) -> Node:
    """Reads a node's file.

    Raises:
        DocumentError: it doesn't follow the schema.
    """
    text = text_of(path)
    node = read_document(path, text, Node)
    _check_numbers(node, path, text)
    return node


def shipped(folder: str) -> dict[str, Path]:
    """The shipped files in a folder, by name."""
    return {
        path.stem: path
        for path in sorted(Path(str(files("safe_launch.hardware")), folder).rglob("*.yaml"))
    }


@functools.cache
def profiles() -> tuple[Profile, ...]:
    """The shipped devices, by vendor and name."""
    return tuple(read_profile(path) for path in shipped("accelerators").values())


@functools.cache
def nodes() -> tuple[Node, ...]:
    """The shipped nodes."""
    return tuple(read_node(path) for path in shipped("nodes").values())


def accelerator_of(profile: Profile, memory: int | None = None) -> Accelerator:
    """Converts a profile to a device."""
    return Accelerator(
        name=profile.name,
        kind=profile.kind,
        memory=int(profile.memory_gib * GIB) if memory is None else memory,
        taken=int((profile.context_gib + profile.communication_gib) * GIB),
        precisions=frozenset(Precision(precision) for precision in profile.precisions),
        compute=profile.compute_tflops * 1e12,
        bandwidth=profile.bandwidth_gb_s * 1e9,
        link=profile.link_gb_s * 1e9,
        node_link=profile.node_link_gb_s * 1e9,
        host_link=profile.host_link_gb_s * 1e9,
        environment=MappingProxyType(dict(profile.environment)),
        restrictions=tuple(profile.restrictions),
        measured=memory is None,
        sized=profile.kind != "unknown",
    )


@functools.cache
def matching(kind: str, name: str, driver_bytes: int) -> Profile | None:
    """The profile of a device, by name and size in its vendor's tool.

    To save time, checks only matching profiles against the schema.
    """
    for path in shipped("accelerators").values():
        facts = raw(path)
        if facts["kind"] != kind or not has_alias(facts, name):
            continue
        profile = read_profile(path)
        if abs(profile.driver_mib * MIB - driver_bytes) <= TOLERANCE * driver_bytes:
            return profile
    return None


def has_alias(facts: Mapping[str, Any], name: str) -> bool:
    """Whether an unchecked profile has an alias for a name."""
    return any(re.search(alias, name) for alias in facts.get("aliases", ()))


def raw(path: Path) -> dict[str, Any]:
    """A shipped file's unchecked facts, to save time."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    facts: dict[str, Any] = yaml.load(text_of(path), loader)  # a safe loader, in C if available
    return facts


def environment_beside(device: Accelerator, names: Iterable[str]) -> dict[str, str]:
    """The variables for a node's workers, given other nodes' devices.

    Includes variables of the node's device, and of the others' shipped profiles; ignores unknown
    names.
    """
    known = shipped("accelerators")
    others = [read_profile(known[name]) for name in names if name != device.name and name in known]
    environment = {name: value for other in others for name, value in other.environment.items()}
    return {**environment, **device.environment}


def profile_named(name: str) -> Profile:
    """The shipped profile of that name.

    Raises:
        LaunchError: the profile doesn't exist.
    """
    known = shipped("accelerators")
    if name in known:
        return read_profile(known[name])
    raise LaunchError(f"there is no accelerator `{name}`", near(name, known))


def in_use_note(size: int) -> str:
    """A note on a device's memory in use by other processes."""
    return f"other processes hold {size / GIB:.1f} GiB of a device already"
