"""Reads the profiles of accelerators and nodes, `hardware/**/*.yaml`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from ..core.choices import Precision
from ..core.errors import ExitCode, LaunchError
from ..core.hardware import Accelerator, Hardware
from ..core.units import GIB, MIB
from ..system.typed_yaml import DocumentError, line_of, near, read_document, text_of

KINDS = ("cpu", "cuda", "npu", "rocm", "unknown")
TOO_MUCH = 1e9
"""An upper limit of all numbers in a profile, in any unit."""
TOLERANCE = 0.1
"""Share by which a device's memory may differ from its profile's."""


@dataclass(frozen=True)
class Profile:
    """Facts of one device, as written in its file; docs/using/hardware.md explains each.

    Attributes:
        name: its name; equals the file's name in shipped profiles.
        kind: cpu, cuda, npu, rocm or unknown.
        aliases: patterns of the names that the vendor's tools have for it.
        memory_gib: memory that the framework reports, in GiB; 0 for a CPU.
        driver_mib: memory that the vendor's tool reports, in MiB; distinguishes sizes of one name.
        context_gib: memory of the device's context and libraries, in GiB.
        communication_gib: memory of NCCL's, RCCL's or HCCL's buffers, in GiB.
        precisions: types that it computes in.
        fp8: whether it has units for 8-bit floating point.
        compute_tflops: dense 16-bit TFLOP/s.
        bandwidth_gb_s: bandwidth of its memory, in GB/s.
        link_gb_s: bandwidth to another device of the node, in one direction, in GB/s.
        node_link_gb_s: bandwidth to a device of another node, in one direction, in GB/s.
        host_link_gb_s: bandwidth to the host's memory, in one direction, in GB/s.
        environment: variables that its workers need unless the user has set them.
        restrictions: what is known not to work, as sentences.
        sources: the sources of the facts.
    """

    name: str = "???"
    kind: str = "???"
    aliases: list[str] = field(default_factory=list)
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
    """A host: its accelerators, cores and memory."""

    name: str = "???"
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


def _root(folder: str) -> Path:
    return Path(str(files("safe_launch.hardware"))) / folder


def read_profile(path: Path) -> Profile:
    """Reads a device's file.

    Raises:
        DocumentError: it doesn't follow the schema; the message names file, line and key.
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


def _is_file(path: Path) -> bool:
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


def _shipped(folder: str) -> dict[str, Path]:
    """The shipped files in a folder, by name."""
    return {path.stem: path for path in sorted(_root(folder).rglob("*.yaml"))}


@functools.cache
def profiles() -> tuple[Profile, ...]:
    """The shipped devices, by vendor and name."""
    return tuple(read_profile(path) for path in _shipped("accelerators").values())


@functools.cache
def nodes() -> tuple[Node, ...]:
    """The shipped nodes."""
    return tuple(read_node(path) for path in _shipped("nodes").values())


def accelerator_of(profile: Profile, memory: int | None = None) -> Accelerator:
    """The device that a profile describes.

    Args:
        profile: its facts.
        memory: measured bytes, for a device without a profile of its own.
    """
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
    """The profile of a device by the name and size that its vendor's tool reports.

    To save time, only matching profiles are checked against the schema.
    """
    for path in _shipped("accelerators").values():
        if not _may_fit(path, kind, name):
            continue
        profile = read_profile(path)
        if abs(profile.driver_mib * MIB - driver_bytes) <= TOLERANCE * driver_bytes:
            return profile
    return None


def _may_fit(path: Path, kind: str, name: str) -> bool:
    """Whether a shipped profile is of this kind and has this name among its aliases."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    raw = yaml.load(text_of(path), loader)  # a safe loader, in C if available
    return raw["kind"] == kind and any(re.search(alias, name) for alias in raw.get("aliases", ()))


def hardware_of(name: str, found: Hardware) -> Hardware:
    """The hardware for `--hardware`: a shipped accelerator or node, or a file of either.

    An accelerator alone doesn't describe the host, so a usual host is assumed, with a note.

    Raises:
        LaunchError: there is no such profile, or the file doesn't follow a schema.
    """
    source = f"--hardware {name}"
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not _is_file(path):
            raise LaunchError(ExitCode.USAGE, f"{source}: no such file")
        if NODES_OWN.search(text_of(path)):
            return _hardware_of_node(path, source)
        return _hardware_of_profile(read_profile(path), source, found)
    known_nodes, known_devices = _shipped("nodes"), _shipped("accelerators")
    if name in known_nodes:
        return _hardware_of_node(known_nodes[name], source)
    if name in known_devices:
        return _hardware_of_profile(read_profile(known_devices[name]), source, found)
    hint = near(name, [*known_devices, *known_nodes])
    raise LaunchError(ExitCode.USAGE, f"{source}: no such profile, and no .yaml file", hint)


def environment_beside(own: Accelerator, names: Iterable[str]) -> dict[str, str]:
    """The variables of a node's workers where other nodes of the job have these devices.

    Those of the node's own device, and those of the shipped profiles of the others; other names are
    ignored.
    """
    known = _shipped("accelerators")
    others = [read_profile(known[name]) for name in names if name != own.name and name in known]
    shipped = {name: value for other in others for name, value in other.environment.items()}
    return {**shipped, **own.environment}


def profile_named(name: str) -> Profile:
    """The shipped profile of that name.

    Raises:
        LaunchError: there is none.
    """
    known = _shipped("accelerators")
    if name in known:
        return read_profile(known[name])
    hint = near(name, known)
    raise LaunchError(ExitCode.USAGE, f"there is no accelerator `{name}`", hint)


NODES_OWN = re.compile(r"^(accelerators?|host_memory_gib)\s*:", re.MULTILINE)
"""Keys that distinguish a node's file from a device's."""


def _hardware_of_node(path: Path, source: str) -> Hardware:
    """The hardware in a node's file; its device is a shipped profile, or a file beside it."""
    node, known = read_node(path), _shipped("accelerators")
    device = known.get(node.accelerator, path.parent / node.accelerator)
    if not _is_file(device):
        line = line_of("accelerator", text_of(path), 1)
        problem = f"`accelerator`: there is no `{node.accelerator}`"
        raise DocumentError(path, line, problem, near(node.accelerator, known))
    return Hardware(
        accelerator=accelerator_of(read_profile(device)),
        accelerators=node.accelerators,
        cores=node.cores,
        host_memory=int(node.host_memory_gib * GIB),
        source=source,
    )


ASSUMED_PER_DEVICE = 128 * GIB
"""Assumed host memory per device if only the device is named: the least in nodes of eight."""
MOST_DEVICES = 8
"""Assumed devices of a node if only the device is named."""


def _hardware_of_profile(profile: Profile, source: str, found: Hardware) -> Hardware:
    """This host's devices if they may be of this kind; otherwise a usual node of them."""
    device, theirs = accelerator_of(profile), found.accelerator
    if not device.memory:
        return Hardware(device, 0, found.cores, found.host_memory, source=source)
    if found.accelerators and device.kind == theirs.kind and _same_size(device, theirs):
        notes = tuple(note for note in found.notes if note == in_use_note(found.in_use))
        return replace(found, accelerator=device, source=source, notes=notes)
    note = f"only the device is named: {MOST_DEVICES} of them with 1 TiB of host memory are assumed"
    memory = MOST_DEVICES * ASSUMED_PER_DEVICE
    return Hardware(device, MOST_DEVICES, 64, memory, source=source, notes=(note,))


def in_use_note(size: int) -> str:
    """The note that other processes hold so many bytes of a device."""
    return f"other processes hold {size / GIB:.1f} GiB of a device already"


def _same_size(ours: Accelerator, theirs: Accelerator) -> bool:
    """Whether the memories may be equal; a device that is only known by its kind may have any."""
    unknown = theirs.name == theirs.kind
    return unknown or abs(ours.memory - theirs.memory) <= TOLERANCE * ours.memory


def contradictions(named: Hardware, found: Hardware, workers: int) -> Sequence[str]:
    """Contradictions between a named profile and the machine, with both numbers."""
    ours, theirs = named.accelerator, found.accelerator
    if ours.kind not in (theirs.kind, "unknown"):
        return [f"it is a {ours.kind} ({ours.name}), this host has {theirs.kind} ({theirs.name})"]
    problems = []
    if ours.memory and not _same_size(ours, theirs):
        sizes = f"{ours.memory / GIB:.1f} GiB", f"{theirs.memory / GIB:.1f}"
        problems.append(f"it has {sizes[0]} a device, the devices here have {sizes[1]}")
    if found.accelerators and workers > found.accelerators:
        problems.append(f"{workers} workers are asked for, {found.accelerators} devices are here")
    if found.host_memory < (1 - TOLERANCE) * named.host_memory:
        sizes = f"{named.host_memory / GIB:.0f} GiB", f"{found.host_memory / GIB:.0f}"
        problems.append(f"it has {sizes[0]} of host memory, this host has {sizes[1]} for the job")
    return problems
