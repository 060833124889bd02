"""The settings that a preset decides, the facts that are known of a run, and their values."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum


class Offload(StrEnum):
    """What DeepSpeed keeps in host memory instead of the accelerator's."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    OPTIMIZER_AND_PARAMETERS = "optimizer_and_parameters"


class Checkpointing(StrEnum):
    """Whether activations are recomputed in the backward pass, and by which implementation.

    The two implementations are those of `torch.utils.checkpoint`: `use_reentrant=True` runs a
    nested backward for each checkpointed block, `use_reentrant=False` recomputes inside the one
    backward through saved-tensor hooks.
    """

    OFF = "off"
    REENTRANT = "reentrant"
    NON_REENTRANT = "non_reentrant"


class Precision(StrEnum):
    """The type that forward and backward compute in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"


class Engine(StrEnum):
    """Who reduces the gradients."""

    DDP = "ddp"
    DEEPSPEED = "deepspeed"
    FSDP = "fsdp"


class Framework(StrEnum):
    """Who owns the training loop, hence which settings can be applied from outside the script."""

    TRANSFORMERS = "transformers"
    ACCELERATE = "accelerate"
    NONE = "none"


class Origin(IntEnum):
    """Where a value comes from; of two statements on one thing the higher origin holds."""

    DEFAULT = 0
    """The framework's default in the installed version."""
    PRESET = 1
    """A named preset."""
    CONFIG = 2
    """A configuration file, or an environment variable that stands for one."""
    FLAG = 3
    """A flag on the script's command line."""
    OBSERVED = 4
    """Seen in a running worker."""
    LESSON = 5
    """Proven by the failure of an attempt."""


class Setting(StrEnum):
    """A setting that a preset decides; the value is the name of the field of `Preset`."""

    ZERO_STAGE = "zero_stage"
    OFFLOAD = "offload"
    GRADIENT_CHECKPOINTING = "gradient_checkpointing"
    MICRO_BATCH = "micro_batch"
    ACCUMULATION = "accumulation"
    PRECISION = "precision"
    STATIC_GRAPH = "static_graph"
    FIND_UNUSED_PARAMETERS = "find_unused_parameters"


class Fact(StrEnum):
    """A fact of the run that a constraint may name but no preset can change."""

    ENGINE = "engine"
    FROZEN_PARAMETERS = "frozen_parameters"
    """Some parameters take no gradient: adapters, frozen towers."""
    BLOCK_RUNS_TWICE = "block_runs_twice"
    """A checkpointed block runs more than once before the backward pass."""
    PARAMETER_OUTSIDE_FORWARD = "parameter_outside_forward"
    """The script computes on parameters outside the forward pass of the module that owns them."""
    UNUSED_PARAMETERS = "unused_parameters"
    """Some trainable parameters take no part in the loss of a step."""
    FP32_ACCUMULATION = "fp32_accumulation"
    """DeepSpeed is asked to accumulate 16-bit gradients in fp32."""


Name = Setting | Fact
"""What a term of a constraint may be about."""

Value = str | int | bool
"""What a setting or a fact can be: a member's value of the enumerations here, a number, a flag."""

VALUES: dict[Setting | Fact, type[Enum] | type[int] | type[bool]] = {
    Setting.ZERO_STAGE: int,
    Setting.OFFLOAD: Offload,
    Setting.GRADIENT_CHECKPOINTING: Checkpointing,
    Setting.MICRO_BATCH: int,
    Setting.ACCUMULATION: int,
    Setting.PRECISION: Precision,
    Setting.STATIC_GRAPH: bool,
    Setting.FIND_UNUSED_PARAMETERS: bool,
    Fact.ENGINE: Engine,
    Fact.FROZEN_PARAMETERS: bool,
    Fact.BLOCK_RUNS_TWICE: bool,
    Fact.PARAMETER_OUTSIDE_FORWARD: bool,
    Fact.UNUSED_PARAMETERS: bool,
    Fact.FP32_ACCUMULATION: bool,
}
"""The type of every setting's and every fact's value."""


def parse_value(name: Setting | Fact, raw: object) -> Value:
    """The value of `name` that `raw`, as YAML or JSON give it, stands for.

    Raises:
        ValueError: `raw` isn't a value of that setting or fact; the message names those that are.
    """
    kind = VALUES[name]
    if kind is bool:
        if isinstance(raw, bool):
            return raw
        raise ValueError(f"{name} is true or false, not {raw!r}")
    if kind is int:
        if isinstance(raw, int) and not isinstance(raw, bool):
            return raw
        raise ValueError(f"{name} is a whole number, not {raw!r}")
    allowed = [str(member.value) for member in kind]  # type: ignore[union-attr]
    if raw is False and "off" in allowed:
        raw = "off"  # YAML 1.1 reads a bare `off` as False
    if raw in allowed:
        return str(raw)
    raise ValueError(f"{name} is one of {', '.join(allowed)}, not {raw!r}")


def name_of(raw: str) -> Setting | Fact:
    """The setting or fact called `raw`.

    Raises:
        KeyError: there is none of that name.
    """
    for name in VALUES:
        if name.value == raw:
            return name
    raise KeyError(raw)
