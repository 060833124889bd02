"""The table of settings: a row for each, from which readers, plans, guards and reports derive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Literal, NamedTuple, Self

from .choices import Checkpointing, Engine, Offload, Precision
from .quantities import GIB

Kind = type[Enum] | type[int] | type[bool] | type[str]

Value = str | int | bool
"""The types of values: a member's value of the enumerations here, a number, a flag."""

TOO_LARGE = 1 << 63
"""No setting, fact or size of a model is as large; products of several can still be floats."""


class Values(NamedTuple):
    """The values of a setting.

    Attributes:
        kind: their type.
        words: a value in the field's words, e.g. `ZeRO stage 2`.
        lightest: the value with the least memory; None if it makes no difference.
        numbers: the range of whole numbers.
        short: a value in the name of a candidate, if it is a part of it.
    """

    kind: Kind
    words: Callable[[Value], str]
    lightest: Value | None = None
    numbers: range = range(TOO_LARGE)
    short: Callable[[Value], str] = lambda _: ""


Cost = Callable[[Value | None, Value, Mapping[str, Value], int], str]
"""The cost of a change: old value (None if unknown), new one, the model's numbers, ranks."""


def _distance(new: Value | None, requested: Value | None) -> float:
    """The difference of two numbers; of others, whether they differ."""
    if isinstance(new, int) and isinstance(requested, int):
        return abs(new - requested)
    return float(new != requested)


def _toggles(new: Value | None, requested: Value | None) -> float:
    """Whether checkpointing was turned on or off, beyond a change of its implementation."""
    return float((new == Checkpointing.OFF) != (requested == Checkpointing.OFF))


class Kept(NamedTuple):
    """A reason to keep a setting as requested.

    Attributes:
        place: its place among all reasons; the first is the most valuable.
        before_time: whether it counts before the predicted time of a step.
        distance: measures how far a value is from the requested one; None is an unknown value.
    """

    place: int
    reason: str
    before_time: Literal["always", "if stated", "never"]
    distance: Callable[[Value | None, Value | None], float] = _distance


def _stage_cost(old: Value | None, new: Value, model: Mapping[str, Value], world: int) -> str:
    """Memory that a lower ZeRO stage takes per rank (Rajbhandari et al., arXiv 1910.02054).

    Stage 3 partitions the parameters, stage 2 the gradients, stage 1 the optimizer states: 2, 2
    and 12 bytes a parameter in mixed precision with Adam.
    """
    if int(new) > int(old or 0):
        return "more communication: partitioned tensors are gathered before each use"
    trained = int(model.get("trainable_parameters", 0))
    total = trained + int(model.get("frozen_parameters", 0))
    parts = {
        3: ("parameters", 2, total),
        2: ("gradients", 2, trained),
        1: ("optimizer states", 12, trained),
    }
    lost = [parts[stage] for stage in range(int(old or 0), int(new), -1)]
    names = " and ".join(name for name, _, _ in lost)
    text = f"every rank now holds all {names} instead of 1/{world} of them"
    more = sum(size * count for _, size, count in lost) * (1 - 1 / world) / GIB
    return f"{text}: about {more:.2g} GiB more a rank in 16 bit" if total else text


def _checkpointing_cost(old: Value | None, new: Value, *_: object) -> str:
    if new == Checkpointing.OFF:
        return "every layer's activations stay in memory; the recomputation is saved"
    if old == Checkpointing.OFF:
        return "every block is computed again in the backward pass; saves activation memory"
    return "almost nothing: the same blocks are recomputed, with the same results"


def _precision_cost(_: Value | None, new: Value, *__: object) -> str:
    """The losses differ, by an amount that the model and the data decide: the rounding is known."""
    bits = {Precision.BF16: 8, Precision.FP16: 11, Precision.FP32: 24}[Precision(str(new))]
    size = "four bytes" if new == Precision.FP32 else "two bytes"
    return f"other losses: activations are rounded to {bits} significant bits, in {size} each"


def _cost_of(on: str, off: str, *, is_off: Value = False) -> Cost:
    """The cost of a change to any value, and of one to the value that turns the setting off."""
    return lambda _, new, *__: off if new == is_off else on


@dataclass(frozen=True, slots=True)
class Row:
    """All about a setting but the formulas of memory and time, and the guards that apply it.

    Attributes:
        name: its name for users, and the field of `Preset`.
        cost: the cost of a change; a sentence if it is the same for all.
        kept: the reasons to keep it.
        engine: the engine with which alone it can be changed; None if that doesn't matter.
        argument: its field of TrainingArguments (transformers/training_args.py).
        variable: accelerate's environment variable.
        deepspeed: its key in DeepSpeed's configuration, with a dot between levels.
        fsdp: its key in the Trainer's `fsdp_config`.
        calls: torch's functions that take it.
        keyword: its argument there, if that isn't its own name.
        is_measured: the cells of the sweep (planning/proven.py) differ in it.
        before_validation: TrainingArguments take it until they are validated.
    """

    name: str
    values: Values
    cost: str | Cost
    kept: tuple[Kept, ...] = ()
    engine: Engine | None = None
    argument: str = ""
    variable: str = ""
    deepspeed: str = ""
    fsdp: str = ""
    calls: tuple[str, ...] = ()
    keyword: str = ""
    is_measured: bool = True
    before_validation: bool = False


class Setting(StrEnum):
    """A setting that a preset decides; the value is the name of the field of `Preset`."""

    kind: Kind
    row: Row

    def __new__(cls, row: Row | str) -> Self:
        """A row `NAME = Row("name", ...)`; only a look-up, `Setting("name")`, has a text."""
        assert isinstance(row, Row)
        setting = str.__new__(cls, row.name)
        setting._value_, setting.kind, setting.row = row.name, row.values.kind, row
        return setting

    ZERO_STAGE = Row(
        "zero_stage",
        Values(int, "ZeRO stage {}".format, 3, range(4), short="zero{}".format),
        _stage_cost,
        (Kept(40, "ZeRO stage: memory against communication", "if stated"),),
        engine=Engine.DEEPSPEED,
        deepspeed="zero_optimization.stage",
        variable="ACCELERATE_DEEPSPEED_ZERO_STAGE",
        before_validation=True,
    )
    """ZeRO stage 0 to 3; 0 is plain data parallelism."""
    OFFLOAD = Row(
        "offload",
        Values(
            Offload,
            lambda value: "no offload" if value == Offload.NONE else f"offload of {value}",
            lightest=Offload.OPTIMIZER_AND_PARAMETERS.value,
            short=lambda of: {"none": "", "optimizer": "+offload"}.get(str(of), "+offload-all"),
        ),
        _cost_of(
            "host memory, and gradients and weights that move there and back; if DeepSpeed "
            "builds its optimizer for the CPU, a C++ compiler",
            "device memory; in return nothing moves between host and device",
            is_off=Offload.NONE.value,
        ),
        (Kept(20, "offload: host memory, its traffic, and an extension to build", "always"),),
        engine=Engine.DEEPSPEED,
        before_validation=True,
    )
    """States kept in host memory."""
    GRADIENT_CHECKPOINTING = Row(
        "gradient_checkpointing",
        Values(
            Checkpointing,
            lambda mode: {
                Checkpointing.OFF.value: "no gradient checkpointing",
                Checkpointing.REENTRANT.value: "reentrant checkpointing",
                Checkpointing.NON_REENTRANT.value: "non-reentrant checkpointing",
            }[str(mode)],
            lightest=Checkpointing.NON_REENTRANT.value,
            short=" {}".format,
        ),
        _checkpointing_cost,
        (
            Kept(30, "checkpointing on or off: activations, or time", "if stated", _toggles),
            Kept(90, "checkpointing's implementation", "never"),
        ),
        calls=("checkpoint", "checkpoint_sequential"),
        keyword="use_reentrant",
        before_validation=True,
    )
    """Whether activations are recomputed in the backward pass, and by which implementation."""
    MICRO_BATCH = Row(
        "micro_batch",
        Values(int, "micro batch {}".format, 1, range(1, TOO_LARGE), short=" {}".format),
        "the global batch stays; more and smaller passes make a step slower",
        (Kept(60, "micro batch: more and smaller passes", "never"),),
        argument="per_device_train_batch_size",
        deepspeed="train_micro_batch_size_per_gpu",
        is_measured=False,
        before_validation=True,
    )
    """Samples of one rank's forward pass."""
    ACCUMULATION = Row(
        "accumulation",
        Values(int, "accumulation {}".format, None, range(1, TOO_LARGE), short="x{}".format),
        "the global batch stays; more and smaller passes make a step slower",
        argument="gradient_accumulation_steps",
        variable="ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        deepspeed="gradient_accumulation_steps",
        before_validation=True,
    )
    """Micro batches of one optimizer step; times micro batch and ranks, it is the global batch."""
    PRECISION = Row(
        "precision",
        Values(Precision, "{}".format, lightest=Precision.BF16.value),
        _precision_cost,
        (Kept(10, "precision: changes the numerics", "always"),),
        variable="ACCELERATE_MIXED_PRECISION",
    )
    """Type of the forward and backward computation."""
    STATIC_GRAPH = Row(
        "static_graph",
        Values(bool, "static_graph={}".format),
        "the same parameters must take part in every step, as static_graph promises",
        (Kept(70, "DDP's static_graph: the script must keep a promise", "never"),),
        engine=Engine.DDP,
        argument="ddp_static_graph",  # from transformers 5 on
        calls=("DistributedDataParallel",),
    )
    """DDP's promise that the graph is the same in every step."""
    FIND_UNUSED_PARAMETERS = Row(
        "find_unused_parameters",
        Values(bool, "find_unused_parameters={}".format),
        _cost_of(
            "DDP walks the graph in every step to find unused parameters",
            "nothing; but a trainable parameter outside the loss would now be an error",
        ),
        (Kept(80, "DDP's find_unused_parameters", "never"),),
        engine=Engine.DDP,
        argument="ddp_find_unused_parameters",
        calls=("DistributedDataParallel",),
    )
    """Whether DDP looks for parameters without a gradient in every step."""
    RESHARD_AFTER_FORWARD = Row(
        "reshard_after_forward",
        Values(
            bool,
            lambda freed: f"parameters {'freed' if freed else 'kept'} after the forward pass",
            lightest=True,
            short=lambda freed: "fsdp2" if freed else "fsdp2 unfreed",
        ),
        _cost_of(
            "every layer's parameters are gathered once more, for the backward pass",
            "the gathered parameters of all layers stay in memory through the backward pass",
        ),
        (Kept(50, "FSDP's parameters freed or kept: the same trade", "if stated"),),
        engine=Engine.FSDP,
        variable="FSDP_RESHARD_AFTER_FORWARD",
        fsdp="reshard_after_forward",
        calls=("fully_shard",),
        is_measured=False,
    )
    """Whether FSDP frees a layer's gathered parameters between its forward and backward pass."""

    @property
    def values(self) -> list[Value]:
        """All values, of a setting with few."""
        if issubclass(self.kind, Enum):
            return [member.value for member in self.kind]
        return [False, True] if self.kind is bool else [*self.row.values.numbers]
