"""The overhead of torch's caching allocator: fragments, and unused memory that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core.hardware import Hardware
from ...core.settings import Fact
from ...core.units import GIB
from ...core.workload import Workload
from .estimate import Component
from .logits import unfit_share

MOVES_WITH_TOKENS = (Component.ACTIVATIONS, Component.LOGITS, Component.VISION)
OF_BACKWARD = (*MOVES_WITH_TOKENS, Component.GATHERED)
"""Components whose blocks are free at the optimizer's step."""


@dataclass(frozen=True, slots=True)
class Allocator:
    """The overhead, as shares of the memory that changes in a step.

    The allocator keeps blocks that nothing uses, and gives them back before it fails
    (c10/cuda/CUDACachingAllocator.cpp, `release_cached_blocks`): they are measured, as reserved
    memory, but no training runs out of memory because of them.

    Attributes:
        fragments: share of all such memory that is lost in fragments.
        varying: share of the logits that is kept if lengths vary: no larger blocks are free for
            those of a longer sequence, while smaller tensors fit into the blocks of shorter ones.
        segments: whether segments have the size of their first tensor, so that some stay unused.
        gathered: share of what ZeRO-3 gathers that is kept, in blocks of all sizes.
        margin: the bound's margin on the memory that changes.
        margin_of_kept: the same if there is room for what is kept.
        margin_of_states: the bound's margin on the memory that doesn't change.
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
        """Bytes that it keeps at each moment of a step.

        At the optimizer's step that is what the backward pass held: its blocks are too small for
        DeepSpeed's flat tensors, and torch's temporaries are as many as the parameters.

        Args:
            moments: changing bytes, by component.
            gathered: bytes that ZeRO-3 gathers.
            workload: the known facts of the training.
        """
        if workload.value(Fact.CACHE_EMPTIED):
            return dict.fromkeys(moments, 0)
        unfit = unfit_share(workload) if self.segments else 0.0
        varying = self.varying if workload.value(Fact.LENGTHS_VARY) else unfit
        kept = {
            name: int(varying * moving.get(Component.LOGITS, 0) + self.gathered * gathered)
            for name, moving in moments.items()
        }
        held = max(_sum(moving, OF_BACKWARD) for moving in moments.values())
        return kept | {"step": max(kept["step"], held)}

    def bound(self, needed: int, held: int, fixed: int, room: int) -> int:
        """Bytes to budget with: beyond the room only what is needed counts.

        Args:
            needed: bytes without which the training fails.
            held: bytes including those that are kept.
            fixed: bytes that don't change in a step.
            room: bytes that a rank may use.
        """
        states = self.margin_of_states * fixed + self.margin_in_bytes
        least = needed + self.margin * (needed - fixed) + states
        most = held + self.margin_of_kept * (held - fixed) + states
        return int(max(least, min(most, room)))


def _sum(moving: Mapping[Component, int], parts: tuple[Component, ...]) -> int:
    return sum(moving.get(part, 0) for part in parts)


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
"""With expandable segments."""
PROCESS = replace(EXPANDABLE, margin_in_bytes=2**26)
"""On a CPU, which has no caching allocator; the margin is for stacks of threads that start with the
training."""
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
"""Without expandable segments blocks of every size are held. Chosen by published measurements of
reserved memory, which docs/measured/memory-published.md lists by source: `varying` by ms-swift's
benchmark, `gathered` by Qwen's ZeRO-3 rows."""


def allocator_of(workload: Workload, hardware: Hardware) -> Allocator:
    """How the workers' allocator behaves, by the user's environment or the profile's."""
    device = hardware.accelerator
    if device.memory == 0:
        return PROCESS
    stated = workload.value(Fact.EXPANDABLE_SEGMENTS)
    if stated is None:
        stated = any("expandable_segments:True" in text for text in device.environment.values())
    return EXPANDABLE if stated else CACHING
