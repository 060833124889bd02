"""The cost of changing a setting, with the model's numbers if they are known."""

from __future__ import annotations

from ..core.choices import Checkpointing, Offload
from ..core.settings import Setting, Value
from ..core.units import GIB
from ..evidence.failure_record import FailureRecord


def cost_text(
    setting: Setting, old: Value | None, new: Value, record: FailureRecord, world: int
) -> str:
    """The cost of a change, with the model's numbers if they are known."""
    match setting:
        case Setting.ZERO_STAGE:
            return _stage_cost(int(old or 0), int(new), record, world)
        case Setting.GRADIENT_CHECKPOINTING if new == Checkpointing.OFF:
            return "every layer's activations stay in memory; the recomputation is saved"
        case Setting.GRADIENT_CHECKPOINTING if old == Checkpointing.OFF:
            return "every block is computed again in the backward pass; saves activation memory"
        case Setting.GRADIENT_CHECKPOINTING:
            return "almost nothing: the same blocks are recomputed, with the same results"
        case Setting.STATIC_GRAPH:
            return "the same parameters must take part in every step, as static_graph promises"
        case Setting.FIND_UNUSED_PARAMETERS:
            return (
                "DDP walks the graph in every step to find unused parameters"
                if new
                else "nothing; but a trainable parameter outside the loss would now be an error"
            )
        case Setting.RESHARD_AFTER_FORWARD if new:
            return "every layer's parameters are gathered once more, for the backward pass"
        case Setting.RESHARD_AFTER_FORWARD:
            return "the gathered parameters of all layers stay in memory through the backward pass"
        case Setting.OFFLOAD if new == Offload.NONE:
            return "device memory; in return nothing moves between host and device"
        case Setting.OFFLOAD:
            return (
                "host memory, and gradients and weights that move there and back; if DeepSpeed "
                "builds its optimizer for the CPU, a C++ compiler"
            )
        case Setting.MICRO_BATCH | Setting.ACCUMULATION:
            return "the global batch stays; more and smaller passes make a step slower"
        case _:
            return "see the documentation"


def _stage_cost(old: int, new: int, record: FailureRecord, world: int) -> str:
    """Memory that a lower ZeRO stage takes per rank (Rajbhandari et al., arXiv 1910.02054).

    Stage 3 partitions the parameters, stage 2 the gradients, stage 1 the optimizer states: 2, 2
    and 12 bytes a parameter in mixed precision with Adam.
    """
    if new > old:
        return "more communication: what is partitioned is gathered before each use"
    trained = int(record.model.get("trainable_parameters", 0))
    total = trained + int(record.model.get("frozen_parameters", 0))
    parts = {
        3: ("parameters", 2, total),
        2: ("gradients", 2, trained),
        1: ("optimizer states", 12, trained),
    }
    lost = [parts[stage] for stage in range(old, new, -1)]
    names = " and ".join(name for name, _, _ in lost)
    text = f"every rank now holds all {names} instead of 1/{world} of them"
    more = sum(size * count for _, size, count in lost) * (1 - 1 / world) / GIB
    return f"{text}: about {more:.2g} GiB more a rank in 16 bit" if total else text
