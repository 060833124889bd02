"""DeepSpeed: the configuration that a script's arguments name, and what it states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..core.choices import Engine, Offload, Optimizer, Precision
from ..core.errors import LaunchError
from ..core.quantities import count_of
from ..core.settings import BATCH, DEEPSPEED_DEFAULTS, Fact, Setting, Value
from ..core.workload import Known, Origin, Statement
from .config_files.deepspeed import Config, ConfigError, load, offload_of, section
from .config_files.vocabulary import optimizer_named
from .framework import Script

FLAGS = (
    "deepspeed",
    "deepspeed_config",
    "ds_config",
    "deepspeed_config_file",
    "deepspeed_config_path",
)
SIZES = {
    Fact.REDUCE_BUCKET: "reduce_bucket_size",
    Fact.ALLGATHER_BUCKET: "allgather_bucket_size",
    Fact.PREFETCH_BUCKET: "stage3_prefetch_bucket_size",
    Fact.PERSISTENCE_THRESHOLD: "stage3_param_persistence_threshold",
    Fact.MAX_LIVE_PARAMETERS: "stage3_max_live_parameters",
    Fact.MAX_REUSE_DISTANCE: "stage3_max_reuse_distance",
    Fact.SUB_GROUP: "sub_group_size",
    Fact.OVERLAP_COMM: "overlap_comm",
    Fact.CONTIGUOUS_GRADIENTS: "contiguous_gradients",
    Fact.FETCHED_BY_ALL_REDUCE: "stage3_use_all_reduce_for_fetch_params",
}
"""Keys of zero_optimization (deepspeed/runtime/zero/config.py)."""
SWITCHES = (Fact.OVERLAP_COMM, Fact.CONTIGUOUS_GRADIENTS, Fact.FETCHED_BY_ALL_REDUCE)
AUTO = (Fact.REDUCE_BUCKET, Fact.PREFETCH_BUCKET, Fact.PERSISTENCE_THRESHOLD)
"""Sizes that Hugging Face derives from the hidden width if "auto"
(transformers/integrations/deepspeed.py)."""
OFFLOADED = ("offload_optimizer", "offload_param")
WARMUP_RATE = 0.001
"""Default final rate of WarmupLR before 0.17.2."""


def read(script: Script) -> Iterator[Statement]:
    """Stage, offload, batch and precision; "auto" is left to the framework that fills it in.

    Raises:
        LaunchError: a file named *.json doesn't exist or isn't a JSON object.
    """
    flag = script.first(*FLAGS)
    if flag is not None:
        value = flag.value
        is_inline = isinstance(value, dict) or str(value).lstrip().startswith("{")
        if is_inline or str(value).endswith(".json"):
            try:
                config = load(value)
            except ConfigError as error:
                raise LaunchError(f"{flag.source}: {error}") from error
            yield from statements(config, flag.source if is_inline else Path(value).name, script)
            return
        if flag is not script.flags.all.get("ds_config"):
            # Some frameworks have named configurations: `--deepspeed zero2`.
            yield Fact.ENGINE, flag.known(Engine.DEEPSPEED.value)
    if is_bare(script):
        yield from _made_by_script(script)


def is_bare(script: Script) -> bool:
    """Whether `--deepspeed` has no value: then it is the switch of DeepSpeed's argparse."""
    return "deepspeed" in script.flags and script.flags["deepspeed"].value is None


def _made_by_script(script: Script) -> Iterator[Statement]:
    """Stage and offload of a configuration built from flags by the script: DeepSpeed-Chat."""
    bare, stage = script.flags["deepspeed"], script.text("zero_stage")
    yield Fact.ENGINE, bare.known(Engine.DEEPSPEED.value)
    if stage is None:
        return
    if str(stage.value) not in ("0", "1", "2", "3"):
        script.notes.append(f"{stage.source}: {stage.value!r} isn't a ZeRO stage")
        return
    number = int(stage.value)
    yield Setting.ZERO_STAGE, stage.known(number)
    offload = script.boolean("offload")
    if offload is not None:
        all_of_it = Offload.OPTIMIZER_AND_PARAMETERS if number == 3 else Offload.OPTIMIZER
        kept = all_of_it if offload.value else Offload.NONE
        yield Setting.OFFLOAD, offload.known(kept.value)


def statements(config: Config, label: str, script: Script) -> Iterator[Statement]:
    """The statements in a configuration.

    Raises:
        LaunchError: its numbers contradict each other or the flags.
    """
    _refuse_contradictions(config, label, script)
    yield from of_config(config, label, script)


def _refuse_contradictions(config: Config, label: str, script: Script) -> None:
    """Refuses values that transformers and DeepSpeed would refuse at the start of training.

    The Trainer requires flags to agree (transformers/integrations/deepspeed.py, `fill_match`),
    DeepSpeed the numbers of a configuration (deepspeed/runtime/config.py, `_batch_assertion`).

    Raises:
        LaunchError: two numbers that must agree don't; the message has both, with their places.
    """
    micro, steps, whole = _batch_of(config, label, replace(script, notes=[]))
    for setting, value in zip(BATCH, (micro, steps), strict=True):
        key = setting.row.deepspeed
        flag = script.flags.get(setting.row.argument) if script.takes_all else None
        text = "" if flag is None else str(flag.value)
        if flag is not None and value is not None and text.isdecimal() and int(text) != value:
            problem = f"{label}: {key} is {value}, but {flag.source} is {text}"
            raise LaunchError(problem, f'write "auto" for {key} in the file')
    if micro and steps and whole and micro * steps * script.world != whole:
        workers = count_of(script.world, "worker")
        product = f"{micro} x {steps} x {workers} = {micro * steps * script.world}"
        problem = (
            f"{label}: train_batch_size is {whole}, but micro batch x accumulation is {product}"
        )
        raise LaunchError(problem, 'leave one of them out, or write "auto"')


def of_config(config: Config, label: str, script: Script) -> Iterator[Statement]:
    """The statements in a configuration, whose numbers aren't checked against each other."""

    def known(value: Value, key: str) -> Known:
        return Known(value, Origin.CONFIG, f"{label}: {key}" if key else label)

    zero = section(config, "zero_optimization")
    stage = zero.get("stage", 0)
    if config.get("zero_optimization") is True:
        stage = 1  # DeepSpeed's oldest format, which it still accepts
    yield Fact.ENGINE, known(Engine.DEEPSPEED.value, "")
    if isinstance(stage, int) and stage in range(4):
        yield Setting.ZERO_STAGE, known(int(stage), Setting.ZERO_STAGE.row.deepspeed)
        if not any(section(zero, name).get("device") == "auto" for name in OFFLOADED):
            offload = offload_of(config)
            if stage < 3 and offload is Offload.OPTIMIZER_AND_PARAMETERS:
                offload = Offload.OPTIMIZER  # the parameters' is stage 3's alone
            yield Setting.OFFLOAD, known(offload.value, "zero_optimization.offload_*")
    elif stage != "auto":
        script.notes.append(f"{label}: zero_optimization.stage: {stage!r} isn't a ZeRO stage")
    micro, steps, _ = _batch_of(config, label, script)
    for setting, number in zip(BATCH, (micro, steps), strict=True):
        if number is not None:
            yield setting, known(number, setting.row.deepspeed)
    yield from _sizes(zero, label, script)
    yield from _optimizer(config, label, script)
    yield from _schedule(config, label)
    super_offload = section(zero, "offload_optimizer").get("super_offload") is True
    load_universal = section(config, "checkpoint").get("load_universal") is True
    for fact, key, is_on in (
        (Fact.SUPER_OFFLOAD, "zero_optimization.offload_optimizer.super_offload", super_offload),
        (Fact.SHARDS_QUANTIZED, "zero_optimization.zero_hpz_partition_size", _is_quantized(zero)),
        (Fact.LOADS_UNIVERSAL, "checkpoint.load_universal", load_universal),
    ):
        if is_on:
            yield fact, known(value=True, key=key)
    ranks = section(config, "tensor_parallel").get("autotp_size")
    if isinstance(ranks, int) and ranks > 1:
        yield Fact.MODEL_PARALLEL, known(ranks, "tensor_parallel.autotp_size")
    dtype = section(config, "data_types").get("grad_accum_dtype")
    yield Fact.FP32_ACCUMULATION, known(dtype == "fp32", "data_types.grad_accum_dtype")
    yield Fact.CLIPS_BY_DEFAULT, known("gradient_clipping" not in config, "gradient_clipping")
    is_default = "check_grad_overflow" not in section(config, "bf16") | section(config, "bfloat16")
    yield Fact.OVERFLOW_BY_DEFAULT, known(is_default, "bf16.check_grad_overflow")
    precision = _precision(config)
    if precision is not None:
        yield Setting.PRECISION, known(precision.value, f"{precision.value}.enabled")


def _batch_of(
    config: Config, label: str, script: Script
) -> tuple[int | None, int | None, int | None]:
    """Micro batch, accumulation and global batch; None unless stated as numbers."""

    def whole_number(key: str) -> int | None:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if value not in (None, "auto"):
            script.notes.append(f"{label}: {key}: {value!r} isn't a positive whole number")
        return None

    micro, steps = (whole_number(setting.row.deepspeed) for setting in BATCH)
    whole = whole_number("train_batch_size")
    if micro and whole and config.get(Setting.ACCUMULATION.row.deepspeed) is None:
        once = micro * script.world
        steps = whole // once if whole % once == 0 else None
    return micro, steps, whole


def _optimizer(config: Config, label: str, script: Script) -> Iterator[Statement]:
    """The optimizer that DeepSpeed creates, if the script has none."""
    optimizer = section(config, "optimizer")
    name, params = optimizer.get("type"), section(optimizer, "params")
    if name is None:
        return
    source = f"{label}: optimizer.type"
    kind = optimizer_named(str(name))
    if kind is Optimizer.SGD and params.get("momentum"):
        kind = Optimizer.LION  # one state
    if kind is None:
        script.unmodelled.append(f"{source}: {name!r} isn't known, so AdamW's states are assumed")
    else:
        yield Fact.OPTIMIZER, Known(kind.value, Origin.CONFIG, source)
    if kind is Optimizer.MUON:  # on by default: deepspeed/runtime/zero/config.py
        scattered = section(config, "zero_optimization").get("reduce_scatter", True) is not False
        where = f"{label}: zero_optimization.reduce_scatter"
        yield Fact.REDUCE_SCATTER, Known(scattered, Origin.CONFIG, where)
    yield Fact.FUSED_STEP, Known(not params.get("torch_adam"), Origin.CONFIG, source)


def _is_quantized(zero: Config) -> bool:
    """Whether ZeRO++ quantizes weights gathered from a node's secondary partition."""
    ranks = zero.get("zero_hpz_partition_size")
    return isinstance(ranks, int) and ranks > 1 and zero.get("zero_quantized_weights") is True


def _schedule(config: Config, label: str) -> Iterator[Statement]:
    """Faults of DeepSpeed's own schedules (deepspeed/runtime/lr_schedules.py)."""
    scheduler = section(config, "scheduler")
    params = section(scheduler, "params")
    rate = section(section(config, "optimizer"), "params").get("lr")
    source = f"{label}: scheduler.params"
    is_warmup = scheduler.get("type") == "WarmupLR" and "warmup_max_lr" not in params
    if is_warmup and rate != WARMUP_RATE:
        yield Fact.WARMUP_WITHOUT_RATE, Known(True, Origin.CONFIG, source)
    stairs = (params.get("cycle_first_stair_count"), params.get("cycle_second_stair_count"))
    if scheduler.get("type") == "OneCycle" and any(stairs):
        yield Fact.RATE_IN_STAIRS, Known(True, Origin.CONFIG, source)


def _sizes(zero: Config, label: str, script: Script) -> Iterator[Statement]:
    """Bucket sizes and thresholds, in elements; the framework fills in "auto"."""
    for fact, key in SIZES.items():
        value = zero.get(key)
        source = f"{label}: zero_optimization.{key}"
        is_switch = fact in SWITCHES
        stated = value if isinstance(value, bool) else _elements(value)
        if stated is not None and isinstance(stated, bool) is is_switch:
            yield fact, Known(stated, Origin.CONFIG, source)
        elif value not in (None, "auto"):
            kind = "neither true nor false" if is_switch else "not a number of elements"
            script.notes.append(f"{source}: {value!r} is {kind}")
    automatic = [fact for fact in AUTO if zero.get(SIZES[fact]) == "auto"]
    if not automatic:
        return
    source = f"{label}: zero_optimization.{SIZES[automatic[0]]}"
    yield Fact.AUTO_BUCKETS, Known(True, Origin.CONFIG, source)
    for fact in AUTO:
        if zero.get(SIZES[fact]) is None:
            size = DEEPSPEED_DEFAULTS[fact]
            yield fact, Known(size, Origin.DEFAULT, f"DeepSpeed's default of {SIZES[fact]}")


def _elements(value: object) -> int | None:
    """Parses a whole number, also in the form 5e8."""
    if isinstance(value, int | float) and value >= 0 and value % 1 == 0:
        return int(value)
    return None


def _precision(config: Config) -> Precision | None:
    """The enabled precision, or fp32; None if left to the framework ("auto")."""
    enabled = {
        precision: section(config, name).get("enabled", False)
        for name, precision in (
            ("bf16", Precision.BF16),
            ("bfloat16", Precision.BF16),
            ("fp16", Precision.FP16),
        )
        if name in config
    }
    for precision, state in enabled.items():
        if state is True:
            return precision
    return None if "auto" in enabled.values() else Precision.FP32
