"""The names of settings and of the facts of a run, and their values."""

from __future__ import annotations

from enum import StrEnum
from typing import Self, TypeGuard

from .choices import (
    Adapter,
    Attention,
    Engine,
    Framework,
    Loss,
    Objective,
    Optimizer,
    Output,
    Precision,
    Units,
)
from .setting_table import TOO_LARGE, Kind
from .setting_table import Setting as Setting  # other modules take them from here
from .setting_table import Value as Value

BATCH = (Setting.MICRO_BATCH, Setting.ACCUMULATION)
"""Settings whose product stays: the global batch."""
OF_DDP, OF_DEEPSPEED, OF_FSDP = (
    tuple(setting for setting in Setting if setting.row.engine is engine) for engine in Engine
)
"""The settings that can be changed with one engine alone."""
LEAST_MEMORY: dict[Setting, Value] = {
    setting: value
    for setting in sorted(Setting, key=lambda setting: setting.row.engine is None)
    if (value := setting.row.values.lightest) is not None
}
"""The values with the least memory, of the settings that decide it, the engines' own first."""


class Fact(StrEnum):
    """A fact of the run that a constraint may name but no preset can change."""

    kind: Kind

    def __new__(cls, name: str, kind: Kind = str) -> Self:
        """A row `NAME = "name", kind`."""
        row = str.__new__(cls, name)
        row._value_, row.kind = name, kind
        return row

    ENGINE = "engine", Engine
    FRAMEWORK = "framework", Framework
    """The owner of the training loop."""
    FROZEN_PARAMETERS = "frozen_parameters", bool
    """Some parameters take no gradient: adapters, frozen towers."""
    BLOCK_RUNS_TWICE = "block_runs_twice", bool
    """A checkpointed block runs more than once before the backward pass."""
    BLOCKS_SHARE_UNIT = "blocks_share_unit", bool
    """A backward pass recomputes blocks of one unit of FSDP's several times."""
    REDUCED_EARLY = "reduced_early", bool
    """Gradients were reduced over the ranks before they were complete, without an error."""
    PARAMETER_OUTSIDE_FORWARD = "parameter_outside_forward", bool
    """The script computes on parameters outside the forward pass of the module that owns them."""
    UNUSED_PARAMETERS = "unused_parameters", bool
    """Some trainable parameters don't contribute to the loss of a step."""
    GRAPH_CHANGES = "graph_changes", bool
    """The parameters that take part in the loss vary from step to step."""
    UNSYNCED_PASSES = "unsynced_passes", bool
    """Under accumulation all backward passes but the last of a step are under DDP's `no_sync`."""
    CHECKPOINT_INPUT_FROZEN = "checkpoint_input_frozen", bool
    """A checkpointed block's inputs take no gradient, since everything before it is frozen."""
    CHECKPOINTED = "checkpointed", bool
    """Activations are recomputed, by an unknown implementation."""
    RANKS_DIVERGE = "ranks_diverge", bool
    """In one step different ranks train different parameters: experts, towers."""
    SEVERAL_BACKWARDS = "several_backwards", bool
    """An engine goes backward several times before a step, without a mark on the last."""
    DEVICE = "device", str
    """The kind of accelerator: cpu, cuda, rocm, xpu, npu; known when entries meet a plan."""
    FP32_ACCUMULATION = "fp32_accumulation", bool
    """DeepSpeed is asked to accumulate 16-bit gradients in fp32."""
    SEQUENCE_LENGTH = "sequence_length", int
    """The maximum of tokens in a sample."""
    LENGTHS_VARY = "lengths_vary", bool
    """Whether the lengths of sequences differ from step to step."""
    EXPANDABLE_SEGMENTS = "expandable_segments", bool
    """Whether torch's allocator grows its segments instead of holding blocks of many sizes."""
    CACHE_EMPTIED = "cache_emptied", bool
    """Torch's allocator returns its unused memory every few steps."""
    NODES = "nodes", int
    """The number of nodes; known when entries meet a plan."""
    COMPILED = "compiled", bool
    """The Trainer compiles the model: torch.compile."""
    TRAINER = "trainer", str
    """The class of trl's that trains; none if another package's derives from it."""
    LIGER = "liger", bool
    """The Trainer is asked for Liger's kernels."""
    PAD_IS_END = "pad_is_end", bool
    """The loss leaves the padding token out, which is the end token as well."""
    TRUNCATED_MASKED = "truncated_masked", bool
    """GRPO leaves cut-off answers out of a loss that is divided by a global number of tokens."""
    ENTROPY_SELECTED = "entropy_selected", bool
    """GRPO trains the tokens of the highest entropy alone."""
    LEFT_UNWRAPPED = "left_unwrapped", bool
    """accelerate trains the model itself, without DDP, as an evaluation has prepared it."""
    RESUMES_MIDWAY = "resumes_midway", bool
    """The Trainer continues within a later epoch than the first."""
    OPTIMIZER = "optimizer", Optimizer
    FUSED_STEP = "fused_step", bool
    """Whether the optimizer's step needs no temporaries of the size of the parameters."""
    ATTENTION = "attention", Attention
    FUSED_LAYERS = "fused_layers", bool
    """A layer's pointwise operations keep their inputs alone: Liger's kernels, torch.compile."""
    OUTPUT = "output", Output
    LOSS = "loss", Loss
    LOSS_SPANS_BATCH = "loss_spans_batch", bool
    """The loss compares the samples of a micro batch, so it depends on the batch's size."""
    OBJECTIVE = "objective", Objective
    PACKED = "packed", bool
    """Samples are put together until they fill the sequence length, the two of a pair too."""
    REFERENCE_MODEL = "reference_model", bool
    """A frozen copy of the model is held in addition."""
    FROZEN_BESIDE = "frozen_beside", int
    """Elements of other frozen models that are held in addition: a teacher, a reward model."""
    TRAINED_BESIDE = "trained_beside", int
    """Elements of another model that is trained in addition: PPO's critic."""
    ADAPTER = "adapter", Adapter
    ADAPTER_HINTED = "adapter_hinted", bool
    """The script or its arguments mention adapters, but in a form that can't be counted."""
    LORA_RANK = "lora_rank", int
    LORA_TARGETS = "lora_targets", str
    """Modules that get an adapter, separated by commas: ends of names, `all-linear`, or one
    regular expression that must match whole names."""
    LORA_SAVED = "lora_saved", str
    """Modules trained in full beside adapters (peft's `modules_to_save`), separated by commas."""
    TIED_SAVED = "tied_saved", bool
    """One end of tied embeddings, or each, is trained as a separate copy beside adapters."""
    MODEL_PARALLEL = "model_parallel", int
    """Ranks that share a sample or a copy of the model (tensors, pipelines); not modelled."""
    DEVICE_MAP = "device_map", bool
    """A process may spread the model's layers over all devices that it sees."""
    QUANTIZATION_BITS = "quantization_bits", int
    """Bits in which the frozen linear layers are held."""
    CALIBRATED = "calibrated", bool
    """They were quantized beforehand, in the language model's layers alone: GPTQ, AWQ."""
    LOADED_PRECISION = "loaded_precision", Precision
    """Type in which the weights are loaded, if no engine casts them."""
    LANGUAGE_TRAINED = "language_trained", bool
    """Whether the language model of a vision-language model is trained."""
    VISION_TRAINED = "vision_trained", bool
    """Whether its vision tower is trained."""
    IMAGE_PATCHES = "image_patches", int
    """The maximum of the vision tower's patches for a sample."""
    REDUCE_BUCKET = "reduce_bucket", int
    """DeepSpeed's reduce_bucket_size, in elements."""
    ALLGATHER_BUCKET = "allgather_bucket", int
    """DeepSpeed's allgather_bucket_size, in elements."""
    PREFETCH_BUCKET = "prefetch_bucket", int
    """DeepSpeed's stage3_prefetch_bucket_size, in elements."""
    PERSISTENCE_THRESHOLD = "persistence_threshold", int
    """DeepSpeed's stage3_param_persistence_threshold, in elements."""
    MAX_LIVE_PARAMETERS = "max_live_parameters", int
    """DeepSpeed's stage3_max_live_parameters, in elements."""
    MAX_REUSE_DISTANCE = "max_reuse_distance", int
    """DeepSpeed's stage3_max_reuse_distance, in elements."""
    SUB_GROUP = "sub_group", int
    """DeepSpeed's sub_group_size, in elements."""
    AUTO_BUCKETS = "auto_buckets", bool
    """Hugging Face fills in DeepSpeed's bucket sizes by the hidden width ("auto")."""
    OVERLAP_COMM = "overlap_comm", bool
    FETCHED_BY_ALL_REDUCE = "fetched_by_all_reduce", bool
    """DeepSpeed's stage3_use_all_reduce_for_fetch_params."""
    REDUCE_SCATTER = "reduce_scatter", bool
    """DeepSpeed's stages 1 and 2 give each rank the mean of its own part of the gradients alone;
    known if that isn't enough for the optimizer: Muon."""
    CONTIGUOUS_GRADIENTS = "contiguous_gradients", bool
    SUPER_OFFLOAD = "super_offload", bool
    """DeepSpeed's super_offload in offload_optimizer, for superchips."""
    SHARDS_QUANTIZED = "shards_quantized", bool
    """ZeRO++ gathers quantized weights from a copy of each node's own."""
    LOADS_UNIVERSAL = "loads_universal", bool
    """DeepSpeed's load_universal: checkpoints are loaded in its universal format."""
    WARMUP_WITHOUT_RATE = "warmup_without_rate", bool
    """DeepSpeed's WarmupLR has no final rate, and its default isn't the optimizer's."""
    RATE_IN_STAIRS = "rate_in_stairs", bool
    """DeepSpeed's OneCycle is asked to change the rate in stairs."""
    RATES_DIFFER = "rates_differ", bool
    """The optimizer's groups of parameters have different learning rates."""
    FSDP_VERSION = "fsdp_version", int
    """1 is torch's FullyShardedDataParallel, 2 its fully_shard; only 2 is modelled."""
    FSDP_UNITS = "fsdp_units", Units
    CLIPS_BY_DEFAULT = "clips_by_default", bool
    """DeepSpeed's configuration doesn't state `gradient_clipping`."""
    OVERFLOW_BY_DEFAULT = "overflow_by_default", bool
    """DeepSpeed's configuration doesn't state whether bf16 gradients are checked for overflows."""
    DTYPE_BY_DEFAULT = "dtype_by_default", bool
    """`from_pretrained` is called without the type of the weights."""
    MASTER_PRECISION = "master_precision", Precision
    """Type of the sharded weights that FSDP's optimizer steps on; if absent, as they are loaded."""
    REDUCE_PRECISION = "reduce_precision", Precision
    """Type in which FSDP reduces gradients; if absent, that of the computation."""


DEEPSPEED_DEFAULTS = {
    Fact.REDUCE_BUCKET: 500_000_000,
    Fact.PREFETCH_BUCKET: 50_000_000,
    Fact.PERSISTENCE_THRESHOLD: 100_000,
    Fact.MAX_LIVE_PARAMETERS: 1_000_000_000,
    Fact.MAX_REUSE_DISTANCE: 1_000_000_000,
    Fact.SUB_GROUP: 1_000_000_000,
}
"""DeepSpeed's sizes in elements if none are stated (deepspeed/runtime/zero/config.py)."""

Name = Setting | Fact
"""The names in a constraint's terms."""

KINDS: dict[object, str] = {bool: "true or false", int: "a whole number", str: "a text"}
NAMES: dict[str, Name] = {name.value: name for name in (*Setting, *Fact)}


def parse_value(name: Name, raw: object) -> Value:
    """The value of `name` for `raw`, a value from YAML or JSON.

    Raises:
        ValueError: `raw` isn't a value of that setting or fact; the message names those that are.
    """
    kind = name.kind
    if kind in KINDS:
        if type(raw) is kind:
            return raw  # type: ignore[return-value]
        raise ValueError(f"{name} is {KINDS[kind]}, not {raw!r}")
    allowed = [str(member.value) for member in kind]  # type: ignore[union-attr]
    if raw is False and "off" in allowed:
        raw = "off"  # YAML 1.1 reads a bare `off` as False
    if raw in allowed:
        return str(raw)
    raise ValueError(f"{name} is one of {', '.join(allowed)}, not {raw!r}")


def is_value(value: object, name: str) -> TypeGuard[Value]:
    """Whether it is a value of the setting or fact of that name, of its type and range."""
    try:
        return value_in_range(name_of(name), value) == value
    except (KeyError, TypeError, ValueError):
        return False


def value_in_range(name: Name, raw: object) -> Value:
    """The value of `name` for `raw`; raises like `parse_value`, and if it is out of range."""
    value = parse_value(name, raw)
    if type(value) is int and value not in range_of(name):
        raise ValueError(f"{name} can't be {value}")
    return value


def range_of(name: Name) -> range:
    """The range of a setting or fact whose value is a whole number."""
    return name.row.values.numbers if isinstance(name, Setting) else range(TOO_LARGE)


def name_of(raw: str) -> Name:
    """The setting or fact called `raw`.

    Raises:
        KeyError: there is none of that name.
    """
    return NAMES[raw]
