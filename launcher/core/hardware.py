"""The hardware that workers run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated

from .choices import Precision
from .limits import NODES, WORKERS, Count, Line, Named, Positive, Rate, number


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Facts of one device; an MI250X or an Ascend 910C counts as two devices.

    Attributes:
        name: the profile's, e.g. `a100-80gb`; without a profile, the device's own.
        kind: `cuda`, `rocm`, `npu`, `cpu` or `unknown`.
        memory: total bytes as reported by the framework, not the marketing number. 0 for a CPU:
            its workers share the host's memory. 0 also if it is unknown.
        taken: bytes outside of the framework's allocator: the accelerator's context, its
            libraries' workspaces, the buffers of NCCL or HCCL.
        precisions: types that it computes in at full speed.
        compute: dense 16-bit FLOP/s.
        bandwidth: bytes/s of its own memory.
        link: bytes/s in one direction to another device of the same node.
        node_link: bytes/s in one direction to a device of another node.
        host_link: bytes/s in one direction to the host's memory.
        environment: variables that its workers need unless the user has set them.
        restrictions: known limitations, as sentences.
        measured: whether a profile names it; otherwise its facts are conservative defaults.
        sized: whether its memory is known; otherwise nothing is changed or refused because of it.
    """

    name: Named
    kind: Named
    memory: Count
    taken: Count
    precisions: frozenset[Precision]
    compute: Rate
    bandwidth: Rate
    link: Rate
    node_link: Rate
    host_link: Rate
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    restrictions: tuple[str, ...] = ()
    measured: bool = True
    sized: bool = True


@dataclass(frozen=True, slots=True)
class Hardware:
    """The accelerators and the host of one node.

    Attributes:
        accelerator: the device; if a host's devices differ, the minimum of their facts.
        accelerators: the number of them that this job may use; 0 for a CPU.
        cores: processor cores that this job may use, cgroup limits included.
        host_memory: bytes of host memory that this job may use, cgroup limits included.
        in_use: the most bytes that other processes hold on any device.
        source: `detected`, or `--hardware NAME`.
        notes: warnings, in words.
    """

    accelerator: Accelerator
    accelerators: Annotated[int, number(0, WORKERS)]
    cores: Annotated[int, number(1, NODES)]
    host_memory: Positive
    in_use: Count = 0
    source: Line = "detected"
    notes: tuple[str, ...] = ()


def common_device(every: Sequence[Accelerator]) -> Accelerator:
    """A device with the least memory and rates, the common abilities, and all needs."""
    return replace(
        min(every, key=lambda device: device.memory),
        taken=max(device.taken for device in every),
        precisions=frozenset.intersection(*(device.precisions for device in every)),
        measured=all(device.measured for device in every),
        sized=all(device.sized for device in every),
        compute=min(device.compute for device in every),
        bandwidth=min(device.bandwidth for device in every),
        link=min(device.link for device in every),
        node_link=min(device.node_link for device in every),
        host_link=min(device.host_link for device in every),
        environment=MappingProxyType(
            {name: value for device in every for name, value in device.environment.items()}
        ),
        restrictions=tuple(
            dict.fromkeys(restriction for each in every for restriction in each.restrictions)
        ),
    )


VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
"""Variables that restrict the devices that a process sees: NVIDIA's and AMD's, Ascend's."""
CORES = "SAFE_LAUNCH_CORES"
"""Variable with a worker's processor cores, separated by commas."""
