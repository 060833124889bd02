"""Resolves `--hardware`: a shipped profile or a cloud's instance in any spelling, or a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import LaunchError
from ..core.hardware import Accelerator, Hardware
from ..core.nearest import near
from ..core.quantities import GIB, count_of
from ..system.regular_files import text_of
from ..system.typed_files import DocumentError, line_of
from . import device_names
from .device_names import Candidate
from .profiles import (
    TOLERANCE,
    Profile,
    accelerator_of,
    has_alias,
    in_use_note,
    is_file,
    profile_named,
    raw,
    read_node,
    read_profile,
    shipped,
)

COUNTED = (
    re.compile(r"(?P<count>\d{1,4})\s*[x\xd7*]\s*(?P<name>.+)", re.IGNORECASE),
    re.compile(r"(?:gpu:)?(?P<name>.+?)\s*(?:[\xd7*:]|x(?=\s*\d+$))\s*(?P<count>\d{1,4})", re.I),
)
"""Spellings of a number of devices by people, Slurm and clouds: `8xH100`, `gpu:a100:4`."""
MOST = 1025
"""A number of devices above any host's."""
INSTANCE_PREFIX = re.compile(r"^(standard_|ml\.)", re.IGNORECASE)
"""Prefixes of Azure's and SageMaker's instance names."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A cloud's virtual machine with accelerators, of `hardware/instances/*.yaml`."""

    name: str
    accelerator: str
    accelerators: int
    cores: int
    host_memory_gib: float


def hardware_of(name: str, detected: Hardware) -> Hardware:
    """The hardware for `--hardware`: a shipped accelerator or node, or a file of either.

    Shipped profiles match spellings of people, drivers and clouds. Of several sizes, takes the
    smallest, with a note, unless this host has another. For a single accelerator, assumes a usual
    host, with a note.

    Raises:
        LaunchError: no profile matches, or several do; or the file doesn't follow a schema.
    """
    source = f"--hardware {name}"
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not is_file(path):
            raise LaunchError(f"--hardware `{name}`: no such file")
        if NODE_KEYS.search(text_of(path)):
            return _hardware_of_node(path, source)
        return _hardware_of_profile(read_profile(path), source, detected)
    if (instance := _instance(name)) is not None:
        return Hardware(
            accelerator=accelerator_of(profile_named(instance.accelerator)),
            accelerators=instance.accelerators,
            cores=instance.cores,
            host_memory=int(instance.host_memory_gib * GIB),
            source=source,
        )
    known_nodes, known_devices = shipped("nodes"), shipped("accelerators")
    count, chosen = _counted(name)
    note = ""
    if chosen not in known_nodes and chosen not in known_devices:
        chosen, note = _meant(chosen, detected)
    if chosen in known_nodes:
        hardware = _hardware_of_node(known_nodes[chosen], source)
        if count is not None:
            has = count_of(hardware.accelerators, "device")
            problem = f"{source}: the node {chosen} has {has}, so that {count} isn't understood"
            raise LaunchError(problem, "--nnodes sets the number of nodes")
    else:
        profile = read_profile(known_devices[chosen])
        hardware = _hardware_of_profile(profile, source, detected, count)
    return replace(hardware, notes=(note, *hardware.notes)) if note else hardware


def instances() -> Iterator[Instance]:
    """All known instances."""
    for path in shipped("instances").values():
        for name, facts in raw(path)["instances"].items():
            yield Instance(name, *facts)


def _instance(name: str) -> Instance | None:
    """An instance by name in any spelling, if known."""
    wanted = INSTANCE_PREFIX.sub("", name.strip()).lower()
    return next((each for each in instances() if each.name.lower() == wanted), None)


def _counted(name: str) -> tuple[int | None, str]:
    """Splits a name into the number of devices, if any, and the rest."""
    for form in COUNTED:
        if (match := form.fullmatch(name.strip())) and 0 < (count := int(match["count"])) < MOST:
            return count, match["name"].strip()
    return None, name


def _meant(name: str, detected: Hardware) -> tuple[str, str]:
    """The profile or node of a name, and a note if others match too.

    Raises:
        LaunchError: the name matches none, or models that differ in more than size.
    """
    candidates = list(_candidates())
    fitting = device_names.fitting(name, candidates)
    relatives = device_names.of_the_model(name, candidates)
    if not relatives or len(fitting) > 1:
        fitting = _by_alias(name, fitting or candidates) or fitting
    if not fitting:
        if is_file(Path(name)):
            problem = f"--hardware `{name}`: a profile's file has a name that ends in .yaml"
            raise LaunchError(problem, f"if it is YAML, rename it: {name}.yaml")
        problem = f"--hardware `{name}`: no such profile, and no .yaml file"
        raise LaunchError(problem, _hint(name, relatives, candidates))
    names = [candidate.name for candidate in fitting]
    if len(names) == 1 or detected.accelerator.name in names:
        return (detected.accelerator.name if len(names) > 1 else names[0]), ""
    smallest = ", the smallest" if fitting[1].gib > fitting[0].gib * (1 + TOLERANCE) else ""
    others = ", ".join(f"--hardware {each}" for each in names[1:])
    return names[0], f"`{name}` is taken to be {names[0]}{smallest}; of the same name: {others}"


def _hint(name: str, relatives: Sequence[Candidate], candidates: Sequence[Candidate]) -> str:
    """Suggestions for an unknown name: devices of the model, or else similar names."""
    if len(relatives) > 1:
        return f"name one of {', '.join(relative.name for relative in relatives)}"
    known = [*(named.name for named in candidates), *(named.name for named in instances())]
    alike = relatives or device_names.of_the_beginning(name, candidates)
    word = alike[0].name if alike else name
    return near(word, known, key=lambda text: device_names.read(text).model)


def _candidates() -> Iterator[Candidate]:
    """All possible names of shipped profiles and nodes."""
    sizes: dict[str, float] = {}
    for name, path in shipped("accelerators").items():
        facts = raw(path)
        sizes[name] = facts.get("driver_mib", 0) / 1024
        yield Candidate(name, (name, *facts.get("called", ())), sizes[name])
    for name, path in shipped("nodes").items():
        facts = raw(path)
        yield Candidate(name, (name, *facts.get("called", ())), sizes[facts["accelerator"]])


def _by_alias(name: str, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Candidates with a matching alias for drivers, and of the size in the name."""
    gib, known = device_names.read(name).gib, shipped("accelerators")
    matches = [
        each
        for each in candidates
        if each.name in known
        and has_alias(raw(known[each.name]), name)
        and (gib is None or abs(gib - each.gib) <= device_names.TOLERANCE * each.gib)
    ]
    return sorted(matches, key=lambda each: each.gib)


NODE_KEYS = re.compile(r"^(accelerators?|host_memory_gib)\s*:", re.MULTILINE)
"""Keys that distinguish a node's file from a device's."""


def _hardware_of_node(path: Path, source: str) -> Hardware:
    """The hardware of a node's file, whose device is a shipped profile or a file beside it."""
    node, known = read_node(path), shipped("accelerators")
    device = known.get(node.accelerator, path.parent / node.accelerator)
    if not is_file(device):
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
"""Assumed host memory per device for a single device: the minimum of nodes with eight."""
MOST_DEVICES = 8
"""Assumed number of devices per node for a single device."""


def _hardware_of_profile(
    profile: Profile, source: str, detected: Hardware, count: int | None = None
) -> Hardware:
    """This host's devices if compatible with the profile; otherwise a usual node of them."""
    device = accelerator_of(profile)
    if not device.memory:
        return Hardware(device, 0, detected.cores, detected.host_memory, source=source)
    is_same_kind = device.kind == detected.accelerator.kind
    if detected.accelerators and is_same_kind and _same_size(device, detected.accelerator):
        notes = tuple(note for note in detected.notes if note == in_use_note(detected.in_use))
        here = detected.accelerators if count is None else count
        return replace(detected, accelerator=device, accelerators=here, source=source, notes=notes)
    many = count or MOST_DEVICES
    memory = many * ASSUMED_PER_DEVICE
    host = f"{memory // GIB:,} GiB" if memory % (1024 * GIB) else f"{memory // (1024 * GIB)} TiB"
    note = f"only the device is named: {many} of them with {host} of host memory are assumed"
    if count is not None:
        note = f"only the devices are named: {host} of host memory are assumed"
    return Hardware(device, many, 8 * many, memory, source=source, notes=(note,))


def _same_size(named: Accelerator, detected: Accelerator) -> bool:
    """Whether memory sizes may be equal; a device known only by kind may have any."""
    unknown = detected.name == detected.kind
    return unknown or abs(named.memory - detected.memory) <= TOLERANCE * named.memory


def contradictions(named: Hardware, detected: Hardware, workers: int) -> Sequence[str]:
    """Contradictions between a named profile and the machine, with both numbers."""
    device, here = named.accelerator, detected.accelerator
    if device.kind not in (here.kind, "unknown"):
        return [f"it is a {device.kind} ({device.name}), this host has {here.kind} ({here.name})"]
    problems = []
    if device.memory and not _same_size(device, here):
        sizes = f"{device.memory / GIB:.1f} GiB", f"{here.memory / GIB:.1f}"
        problems.append(f"it has {sizes[0]} a device, the devices here have {sizes[1]}")
    if detected.accelerators and workers > detected.accelerators:
        requested = count_of(workers, "worker is", "workers are")
        present = count_of(detected.accelerators, "device is", "devices are")
        problems.append(f"{requested} asked for, {present} here")
    if detected.host_memory < (1 - TOLERANCE) * named.host_memory:
        sizes = f"{named.host_memory / GIB:.0f} GiB", f"{detected.host_memory / GIB:.0f}"
        problems.append(f"it has {sizes[0]} of host memory, this host has {sizes[1]} for the job")
    return problems
