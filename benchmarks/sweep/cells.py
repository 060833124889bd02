"""The cells of the sweep: every combination of plannable settings and a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

OFFLOADS = {
    "zero0": ("none",),
    "zero1": ("none", "optimizer"),
    "zero2": ("none", "optimizer"),
    "zero3": ("none", "optimizer", "optimizer_and_parameters"),
    "ddp": ("none",),
    "ddp_static": ("none",),
    "ddp_unused": ("none",),
    "fsdp2": ("none", "optimizer_and_parameters"),
}
"""States that each engine can keep in host memory."""
ENGINES = {
    "deepspeed": ("zero0", "zero1", "zero2", "zero3"),
    "torch": ("ddp", "ddp_static", "ddp_unused", "fsdp2"),
}
"""The engines covered by each library's versions."""
ACCUMULATIONS = (1, 3)
"""Micro batches of a step: with three, one is neither first nor last."""
PRECISIONS = ("fp32", "bf16", "fp16")
CHECKPOINTINGS = ("off", "reentrant", "non_reentrant")
CLIPPINGS = ("unclipped", "clipped")
MODELS = ("twice", "once", "lora", "lora_twice", "frozen", "tied")


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of settings, and its model.

    Attributes:
        engine: a stage of ZeRO's, DDP (with a static graph, or with a search for unused
            parameters), or FSDP 2.
        offload: the states kept in host memory.
        accumulation: micro batches of a step.
        precision: the type of forward and backward.
        checkpointing: whether activations are recomputed, and by which implementation.
        clipping: whether the gradient's norm is limited, to a half of its value.
        model: the trained model.
    """

    engine: str
    offload: str
    accumulation: int
    precision: str
    checkpointing: str
    clipping: str
    model: str

    def __str__(self) -> str:
        """The key of the cell in a file of results."""
        return "/".join(str(getattr(self, name)) for name in self.__slots__)


def cell_of(key: str) -> Cell:
    """The cell of a key."""
    engine, offload, accumulation, *rest = key.split("/")
    return Cell(engine, offload, int(accumulation), *rest)


def cells(library: str) -> Iterator[Cell]:
    """All cells for a version of `deepspeed` or `torch`, model by model."""
    rest = (ACCUMULATIONS, PRECISIONS, CHECKPOINTINGS, CLIPPINGS)
    for model, engine in itertools.product(MODELS, ENGINES[library]):
        for offload, values in itertools.product(OFFLOADS[engine], itertools.product(*rest)):
            yield Cell(engine, offload, *values, model)
