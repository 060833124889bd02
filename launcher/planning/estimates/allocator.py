"""Overhead of torch's caching allocator: fragments and unused cached blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core.hardware import Hardware
from ...core.quantities import GIB
from ...core.settings import Fact
from ...core.workload import Workload
from .estimate import Component
from .logits import unfit_share

OF_BACKWARD = (Component.ACTIVATIONS, Component.LOGITS, Component.VISION, Component.GATHERED)
"""Components whose blocks are free at the optimizer step."""


@dataclass(frozen=True, slots=True)
class Allocator:
    """Allocator overhead, as shares of the memory that changes within a step.

    The allocator caches unused blocks, and releases them before failing
    (c10/cuda/CUDACachingAllocator.cpp, `release_cached_blocks`): they count in the measured
    reserved memory, but no training runs out of memory because of them.

    Attributes:
        fragments: share lost to fragmentation.
        varying: share of the logits kept if lengths vary: longer sequences don't fit into free
            blocks, while smaller tensors fit into the blocks of shorter ones.
        segments: whether segments have their first tensor's size, so some stay unused.
        gathered: share of ZeRO-3's gathered parameters kept in blocks of all sizes.
        margin: the bound's margin on changing memory.
        margin_of_kept: the same if cached blocks fit.
        margin_of_states: the bound's margin on constant memory.
        margin_in_bytes: the bound's fixed margin.
    """

    fragments: float
    varying: float
    segments: bool
    gathered: float
    margin: float
    margin_of_kept: float
    margin_of_states: float
    margin_in_bytes: int

    def kept(
        self, moments: Mapping[str, Mapping[Component, int]], gathered: int, workload: Workload
    ) -> dict[str, int]:
        """Bytes cached at each moment of a step; `gathered` are ZeRO-3's.

        At the optimizer step, these are the backward pass's blocks: they are too small for
        DeepSpeed's flat tensors, while torch's temporaries are as many as the parameters.
        """
        if workload.value(Fact.CACHE_EMPTIED):
            return dict.fromkeys(moments, 0)
        unfit = unfit_share(workload) if self.segments else 0.0
        varying = self.varying if workload.value(Fact.LENGTHS_VARY) else unfit
        kept = {
            name: int(varying * moving.get(Component.LOGITS, 0) + self.gathered * gathered)
            for name, moving in moments.items()
        }
        held = max(sum(moving.get(part, 0) for part in OF_BACKWARD) for moving in moments.values())
        return kept | {"step": max(kept["step"], held)}

    def bound(self, needed: int, held: int, fixed: int, room: int) -> int:
        """Bytes to budget with: beyond the room, only needed bytes count.

        Args:
            needed: bytes without which the training fails.
            held: bytes including cached blocks.
            fixed: bytes constant within a step.
            room: bytes that a rank may use.
        """
        states = self.margin_of_states * fixed + self.margin_in_bytes
        least = needed + self.margin * (needed - fixed) + states
        most = held + self.margin_of_kept * (held - fixed) + states
        return int(max(least, min(most, room)))


EXPANDABLE = Allocator(
    fragments=0.04,
    varying=0.1,
    segments=False,
    gathered=0.1,
    margin=0.15,
    margin_of_kept=0.4,
    margin_of_states=0.02,
    margin_in_bytes=2**29,
)
"""Overhead with expandable segments."""
PROCESS = replace(EXPANDABLE, margin_in_bytes=2**26)
"""Overhead on a CPU, which has no caching allocator; the margin is for stacks of threads started by
the training."""
CACHING = Allocator(
    fragments=0.04,
    varying=2.2,
    segments=True,
    gathered=3.0,
    margin=0.3,
    margin_of_kept=1.0,
    margin_of_states=0.1,
    margin_in_bytes=GIB,
)
"""Overhead without expandable segments, where blocks of every size are held. Fitted to published
measurements of reserved memory (docs/measured/memory-published.md): `varying` to ms-swift's
benchmark, `gathered` to Qwen's ZeRO-3 rows."""


def allocator_of(workload: Workload, hardware: Hardware) -> Allocator:
    """The workers' allocator, by the user's environment or the profile."""
    device = hardware.accelerator
    if device.memory == 0:
        return PROCESS
    stated = workload.value(Fact.EXPANDABLE_SEGMENTS)
    if stated is None:
        stated = any("expandable_segments:True" in text for text in device.environment.values())
    return EXPANDABLE if stated else CACHING
