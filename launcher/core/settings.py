"""The settings that a preset decides, the facts that are known of a run, and their values."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TypeGuard

from .choices import (
    Adapter,
    Attention,
    Checkpointing,
    Engine,
    Framework,
    Loss,
    Objective,
    Offload,
    Optimizer,
    Output,
    Precision,
    Units,
)


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
    RESHARD_AFTER_FORWARD = "reshard_after_forward"


class Fact(StrEnum):
    """A fact of the run that a constraint may name but no preset can change."""

    ENGINE = "engine"
    FRAMEWORK = "framework"
    """Who owns the training loop."""
    FROZEN_PARAMETERS = "frozen_parameters"
    """Some parameters take no gradient: adapters, frozen towers."""
    BLOCK_RUNS_TWICE = "block_runs_twice"
    """A checkpointed block runs more than once before the backward pass."""
    BLOCKS_SHARE_UNIT = "blocks_share_unit"
    """A backward pass recomputes blocks of one unit of FSDP's several times."""
    REDUCED_EARLY = "reduced_early"
    """Gradients were reduced over the ranks before they were complete, without an error."""
    PARAMETER_OUTSIDE_FORWARD = "parameter_outside_forward"
    """The script computes on parameters outside the forward pass of the module that owns them."""
    UNUSED_PARAMETERS = "unused_parameters"
    """Some trainable parameters don't contribute to the loss of a step."""
    GRAPH_CHANGES = "graph_changes"
    """Which parameters take part in the loss differs from step to step."""
    UNSYNCED_PASSES = "unsynced_passes"
    """Under accumulation all backward passes but the last of a step are under DDP's `no_sync`."""
    CHECKPOINT_INPUT_FROZEN = "checkpoint_input_frozen"
    """A checkpointed block's inputs take no gradient, since everything before it is frozen."""
    CHECKPOINTED = "checkpointed"
    """Activations are recomputed, by an unknown implementation."""
    RANKS_DIVERGE = "ranks_diverge"
    """In one step different ranks train different parameters: experts, towers."""
    SEVERAL_BACKWARDS = "several_backwards"
    """An engine goes backward several times before a step, and isn't told which is the last."""
    DEVICE = "device"
    """The kind of accelerator: cpu, cuda, rocm, xpu, npu; known where an entry tells of a plan."""
    FP32_ACCUMULATION = "fp32_accumulation"
    """DeepSpeed is asked to accumulate 16-bit gradients in fp32."""
    SEQUENCE_LENGTH = "sequence_length"
    """The maximum of tokens in a sample."""
    LENGTHS_VARY = "lengths_vary"
    """Whether the lengths of sequences differ from step to step."""
    EXPANDABLE_SEGMENTS = "expandable_segments"
    """Whether torch's allocator grows its segments instead of holding blocks of many sizes."""
    CACHE_EMPTIED = "cache_emptied"
    """Torch's allocator gives back what it holds unused every few steps."""
    NODES = "nodes"
    """The number of nodes; known where an entry tells of a plan."""
    COMPILED = "compiled"
    """The Trainer compiles the model: torch.compile."""
    TRAINER = "trainer"
    """The class of trl's that trains; none where another package's derives from it."""
    LIGER = "liger"
    """The Trainer is asked for Liger's kernels."""
    PAD_IS_END = "pad_is_end"
    """The loss leaves the padding token out, which is the end token as well."""
    TRUNCATED_MASKED = "truncated_masked"
    """GRPO leaves cut-off answers out of a loss that is divided by a global number of tokens."""
    ENTROPY_SELECTED = "entropy_selected"
    """GRPO trains the tokens of the highest entropy alone."""
    RESUMES_MIDWAY = "resumes_midway"
    """The Trainer goes on within a later epoch than the first."""
    OPTIMIZER = "optimizer"
    FUSED_STEP = "fused_step"
    """Whether the optimizer's step needs no temporaries of the size of the parameters."""
    ATTENTION = "attention"
    FUSED_LAYERS = "fused_layers"
    """A layer's pointwise operations keep their inputs alone: Liger's kernels, torch.compile."""
    OUTPUT = "output"
    LOSS = "loss"
    LOSS_SPANS_BATCH = "loss_spans_batch"
    """The loss compares the samples of a micro batch, so it depends on the batch's size."""
    OBJECTIVE = "objective"
    PACKED = "packed"
    """Samples are put together until they fill the sequence length, the two of a pair too."""
    REFERENCE_MODEL = "reference_model"
    """A frozen copy of the model is held in addition."""
    FROZEN_BESIDE = "frozen_beside"
    """Elements of other frozen models that are held in addition: a teacher, a reward model."""
    TRAINED_BESIDE = "trained_beside"
    """Elements of another model that is trained in addition: PPO's critic."""
    ADAPTER = "adapter"
    ADAPTER_HINTED = "adapter_hinted"
    """The script or its arguments mention adapters, but in a form that can't be counted."""
    LORA_RANK = "lora_rank"
    LORA_TARGETS = "lora_targets"
    """Modules that get an adapter, separated by commas: ends of names, `all-linear`, or one
    regular expression that must match whole names."""
    LORA_SAVED = "lora_saved"
    """Modules trained in full beside adapters (peft's `modules_to_save`), separated by commas."""
    TIED_SAVED = "tied_saved"
    """One end of tied embeddings, or each, is trained as a copy of its own beside adapters."""
    MODEL_PARALLEL = "model_parallel"
    """Ranks that share a sample or a copy of the model (tensors, pipelines); not modelled."""
    DEVICE_MAP = "device_map"
    """A process may spread the model's layers over all devices that it sees."""
    QUANTIZATION_BITS = "quantization_bits"
    """Bits in which the frozen linear layers are held."""
    CALIBRATED = "calibrated"
    """They were quantized beforehand, in the language model's layers alone: GPTQ, AWQ."""
    LOADED_PRECISION = "loaded_precision"
    """Type in which the weights are loaded, if no engine casts them."""
    LANGUAGE_TRAINED = "language_trained"
    """Whether the language model of a vision-language model is trained."""
    VISION_TRAINED = "vision_trained"
    """Whether its vision tower is trained."""
    IMAGE_PATCHES = "image_patches"
    """The maximum of the vision tower's patches for a sample."""
    REDUCE_BUCKET = "reduce_bucket"
    """DeepSpeed's reduce_bucket_size, in elements."""
    ALLGATHER_BUCKET = "allgather_bucket"
    """DeepSpeed's allgather_bucket_size, in elements."""
    PREFETCH_BUCKET = "prefetch_bucket"
    """DeepSpeed's stage3_prefetch_bucket_size, in elements."""
    PERSISTENCE_THRESHOLD = "persistence_threshold"
    """DeepSpeed's stage3_param_persistence_threshold, in elements."""
    MAX_LIVE_PARAMETERS = "max_live_parameters"
    """DeepSpeed's stage3_max_live_parameters, in elements."""
    MAX_REUSE_DISTANCE = "max_reuse_distance"
    """DeepSpeed's stage3_max_reuse_distance, in elements."""
    SUB_GROUP = "sub_group"
    """DeepSpeed's sub_group_size, in elements."""
    AUTO_BUCKETS = "auto_buckets"
    """Hugging Face fills in DeepSpeed's bucket sizes by the hidden width ("auto")."""
    OVERLAP_COMM = "overlap_comm"
    FETCHED_BY_ALL_REDUCE = "fetched_by_all_reduce"
    """DeepSpeed's stage3_use_all_reduce_for_fetch_params."""
    REDUCE_SCATTER = "reduce_scatter"
    """DeepSpeed's stages 1 and 2 give each rank the mean of its own part of the gradients alone;
    known where that isn't enough for the optimizer: Muon."""
    CONTIGUOUS_GRADIENTS = "contiguous_gradients"
    SUPER_OFFLOAD = "super_offload"
    """DeepSpeed's super_offload in offload_optimizer, for superchips."""
    SHARDS_QUANTIZED = "shards_quantized"
    """ZeRO++ gathers quantized weights from a copy of each node's own."""
    LOADS_UNIVERSAL = "loads_universal"
    """DeepSpeed's load_universal: checkpoints are loaded in its universal format."""
    WARMUP_WITHOUT_RATE = "warmup_without_rate"
    """DeepSpeed's WarmupLR isn't told where to end, and the optimizer has another rate than its."""
    RATE_IN_STAIRS = "rate_in_stairs"
    """DeepSpeed's OneCycle is asked to change the rate in stairs."""
    RATES_DIFFER = "rates_differ"
    """The optimizer's groups of parameters have different learning rates."""
    FSDP_VERSION = "fsdp_version"
    """1 is torch's FullyShardedDataParallel, 2 its fully_shard; only 2 is modelled."""
    FSDP_UNITS = "fsdp_units"
    CLIPS_BY_DEFAULT = "clips_by_default"
    """DeepSpeed's configuration doesn't state `gradient_clipping`."""
    OVERFLOW_BY_DEFAULT = "overflow_by_default"
    """DeepSpeed's configuration doesn't state whether bf16 gradients are checked for overflows."""
    DTYPE_BY_DEFAULT = "dtype_by_default"
    """`from_pretrained` isn't told the type of the weights."""
    MASTER_PRECISION = "master_precision"
    """Type of the sharded weights that FSDP's optimizer steps on; if absent, as they are loaded."""
    REDUCE_PRECISION = "reduce_precision"
    """Type in which FSDP reduces gradients; if absent, that of the computation."""


Name = Setting | Fact
"""The names in a constraint's terms."""

Value = str | int | bool
"""The types of values: a member's value of the enumerations here, a number, a flag."""

VALUES: dict[Setting | Fact, type[Enum] | type[int] | type[bool] | type[str]] = {
    Setting.ZERO_STAGE: int,
    Setting.OFFLOAD: Offload,
    Setting.GRADIENT_CHECKPOINTING: Checkpointing,
    Setting.MICRO_BATCH: int,
    Setting.ACCUMULATION: int,
    Setting.PRECISION: Precision,
    Setting.STATIC_GRAPH: bool,
    Setting.FIND_UNUSED_PARAMETERS: bool,
    Setting.RESHARD_AFTER_FORWARD: bool,
    Fact.ENGINE: Engine,
    Fact.FRAMEWORK: Framework,
    Fact.FROZEN_PARAMETERS: bool,
    Fact.BLOCK_RUNS_TWICE: bool,
    Fact.BLOCKS_SHARE_UNIT: bool,
    Fact.REDUCED_EARLY: bool,
    Fact.PARAMETER_OUTSIDE_FORWARD: bool,
    Fact.UNUSED_PARAMETERS: bool,
    Fact.GRAPH_CHANGES: bool,
    Fact.UNSYNCED_PASSES: bool,
    Fact.CHECKPOINT_INPUT_FROZEN: bool,
    Fact.CHECKPOINTED: bool,
    Fact.RANKS_DIVERGE: bool,
    Fact.SEVERAL_BACKWARDS: bool,
    Fact.DEVICE: str,
    Fact.FP32_ACCUMULATION: bool,
    Fact.SEQUENCE_LENGTH: int,
    Fact.LENGTHS_VARY: bool,
    Fact.EXPANDABLE_SEGMENTS: bool,
    Fact.CACHE_EMPTIED: bool,
    Fact.NODES: int,
    Fact.COMPILED: bool,
    Fact.TRAINER: str,
    Fact.LIGER: bool,
    Fact.PAD_IS_END: bool,
    Fact.TRUNCATED_MASKED: bool,
    Fact.ENTROPY_SELECTED: bool,
    Fact.RESUMES_MIDWAY: bool,
    Fact.OPTIMIZER: Optimizer,
    Fact.FUSED_STEP: bool,
    Fact.ATTENTION: Attention,
    Fact.FUSED_LAYERS: bool,
    Fact.OUTPUT: Output,
    Fact.LOSS: Loss,
    Fact.OBJECTIVE: Objective,
    Fact.PACKED: bool,
    Fact.REFERENCE_MODEL: bool,
    Fact.FROZEN_BESIDE: int,
    Fact.TRAINED_BESIDE: int,
    Fact.ADAPTER: Adapter,
    Fact.ADAPTER_HINTED: bool,
    Fact.LORA_RANK: int,
    Fact.LORA_TARGETS: str,
    Fact.LORA_SAVED: str,
    Fact.TIED_SAVED: bool,
    Fact.MODEL_PARALLEL: int,
    Fact.DEVICE_MAP: bool,
    Fact.QUANTIZATION_BITS: int,
    Fact.CALIBRATED: bool,
    Fact.LOADED_PRECISION: Precision,
    Fact.LANGUAGE_TRAINED: bool,
    Fact.VISION_TRAINED: bool,
    Fact.IMAGE_PATCHES: int,
    Fact.REDUCE_BUCKET: int,
    Fact.ALLGATHER_BUCKET: int,
    Fact.PREFETCH_BUCKET: int,
    Fact.PERSISTENCE_THRESHOLD: int,
    Fact.MAX_LIVE_PARAMETERS: int,
    Fact.MAX_REUSE_DISTANCE: int,
    Fact.SUB_GROUP: int,
    Fact.AUTO_BUCKETS: bool,
    Fact.OVERLAP_COMM: bool,
    Fact.FETCHED_BY_ALL_REDUCE: bool,
    Fact.REDUCE_SCATTER: bool,
    Fact.CONTIGUOUS_GRADIENTS: bool,
    Fact.SUPER_OFFLOAD: bool,
    Fact.SHARDS_QUANTIZED: bool,
    Fact.LOADS_UNIVERSAL: bool,
    Fact.WARMUP_WITHOUT_RATE: bool,
    Fact.RATE_IN_STAIRS: bool,
    Fact.RATES_DIFFER: bool,
    Fact.FSDP_VERSION: int,
    Fact.FSDP_UNITS: Units,
    Fact.CLIPS_BY_DEFAULT: bool,
    Fact.OVERFLOW_BY_DEFAULT: bool,
    Fact.DTYPE_BY_DEFAULT: bool,
    Fact.MASTER_PRECISION: Precision,
    Fact.REDUCE_PRECISION: Precision,
}
"""The type of every setting's and every fact's value."""
TOO_LARGE = 1 << 63
"""No setting, fact or size of a model is as large; products of several can still be floats."""
KINDS: dict[object, str] = {bool: "true or false", int: "a whole number", str: "a text"}
_NAMES = {name.value: name for name in VALUES}


def parse_value(name: Setting | Fact, raw: object) -> Value:
    """The value of `name` for `raw`, a value from YAML or JSON.

    Raises:
        ValueError: `raw` isn't a value of that setting or fact; the message names those that are.
    """
    kind = VALUES[name]
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
        known = name_of(name)
        parsed = parse_value(known, value)
    except (KeyError, TypeError, ValueError):
        return False
    return parsed == value and not (type(value) is int and value not in range_of(known))


def range_of(name: Setting | Fact) -> range:
    """The range of a setting or fact whose value is a whole number."""
    if name is Setting.ZERO_STAGE:
        return range(4)
    return range(int(name in (Setting.MICRO_BATCH, Setting.ACCUMULATION)), TOO_LARGE)


def name_of(raw: str) -> Setting | Fact:
    """The setting or fact called `raw`.

    Raises:
        KeyError: there is none of that name.
    """
    return _NAMES[raw]
