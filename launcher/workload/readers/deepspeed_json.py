"""Reads the DeepSpeed configuration that a script's arguments name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.certainty import Origin
from ...core.choices import Engine, Offload, Optimizer, Precision
from ...core.count_of import count_of
from ...core.errors import ExitCode, LaunchError
from ...core.settings import Fact, Setting, Value
from ...core.workload import Known, Statement
from ..config_files.deepspeed import Config, ConfigError, load, offload_of, section
from ..script.given import Given
from ..script.known_values import Unknown
from ..script.script import Script
from .vocabulary import optimizer_named

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
}
"""Keys of zero_optimization (deepspeed/runtime/zero/config.py)."""
SWITCHES = (Fact.OVERLAP_COMM, Fact.CONTIGUOUS_GRADIENTS)
AUTO = {
    Fact.REDUCE_BUCKET: 500_000_000,
    Fact.PREFETCH_BUCKET: 50_000_000,
    Fact.PERSISTENCE_THRESHOLD: 100_000,
}
"""Sizes that Hugging Face derives from the hidden width if they are "auto", and DeepSpeed's own
defaults if they are absent (transformers/integrations/deepspeed.py)."""
OFFLOADED = ("offload_optimizer", "offload_param")
FLAGS = (
    "deepspeed",
    "deepspeed_config",
    "ds_config",
    "deepspeed_config_file",
    "deepspeed_config_path",
)


def read(script: Script) -> Iterator[Statement]:
    """Stage, offload, batch and precision; "auto" is left to the framework that fills it in.

    Raises:
        LaunchError: a file named *.json doesn't exist or isn't a JSON object.
    """
    for name in FLAGS:
        given = script.text(name)
        if given is None:
            continue
        value = given.value
        is_text = isinstance(value, str) and value.lstrip().startswith("{")
        if isinstance(value, dict) or is_text or str(value).endswith(".json"):
            yield from statements(_config(given), _label(given), script, given.origin)
            if given.origin > Origin.SCRIPT:
                return
        elif name != "ds_config":
            # Some frameworks have named configurations of their own: `--deepspeed zero2`.
            yield Fact.ENGINE, Known(Engine.DEEPSPEED.value, given.origin, given.source)
        break
    if is_bare(script):
        yield from _made_by_script(script)


def is_bare(script: Script) -> bool:
    """Whether `--deepspeed` stands alone: then it is the switch of DeepSpeed's own argparse."""
    return "deepspeed" in script.flags and script.flags["deepspeed"].value is None


def _made_by_script(script: Script) -> Iterator[Statement]:
    """Stage and offload of a configuration that the script makes of its flags: DeepSpeed-Chat."""
    bare, stage = script.flags["deepspeed"], script.text("zero_stage")
    yield Fact.ENGINE, Known(Engine.DEEPSPEED.value, bare.origin, bare.source)
    if stage is None or script.is_open("zero_stage"):
        return
    if str(stage.value) not in ("0", "1", "2", "3"):
        script.notes.append(f"{stage.source}: {stage.value!r} isn't a ZeRO stage")
        return
    number = int(stage.value)
    yield Setting.ZERO_STAGE, Known(number, stage.origin, stage.source)
    offload = script.boolean("offload")
    if offload is not None:
        all_of_it = Offload.OPTIMIZER_AND_PARAMETERS if number == 3 else Offload.OPTIMIZER
        kept = all_of_it if offload.value else Offload.NONE
        yield Setting.OFFLOAD, Known(kept.value, offload.origin, offload.source)


def _config(given: Given) -> Config:
    try:
        return load(_settled(given.value))
    except ConfigError as error:
        raise LaunchError(ExitCode.USAGE, f"{given.source}: {error}") from error


def _settled(value: Any) -> Any:
    """A configuration of the script's, in which what isn't known is left to others."""
    if isinstance(value, dict):
        return {key: _settled(each) for key, each in value.items()}
    return "auto" if isinstance(value, Unknown) else value


def _label(given: Given) -> str:
    """The configuration's name in messages."""
    value = given.value
    is_path = isinstance(value, str) and not value.lstrip().startswith("{")
    return Path(value).name if is_path else given.source


def statements(
    config: Config, label: str, script: Script, origin: Origin = Origin.CONFIG
) -> Iterator[Statement]:
    """The statements in a configuration: a file's, or one that the script's source creates."""
    origin = min(origin, Origin.CONFIG)

    def known(value: Value, key: str) -> Known:
        return Known(value, origin, f"{label}: {key}" if key else label)

    def whole_number(key: str) -> int | None:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if value not in (None, "auto"):
            script.notes.append(f"{label}: {key}: {value!r} isn't a positive whole number")
        return None

    zero = section(config, "zero_optimization")
    stage = zero.get("stage", 0)
    if config.get("zero_optimization") is True:
        stage = 1  # DeepSpeed's oldest format, which it still accepts
    yield Fact.ENGINE, known(Engine.DEEPSPEED.value, "")
    if isinstance(stage, int) and stage in range(4):
        yield Setting.ZERO_STAGE, known(int(stage), "zero_optimization.stage")
        if not any(section(zero, name).get("device") == "auto" for name in OFFLOADED):
            offload = offload_of(config)
            if stage < 3 and offload is Offload.OPTIMIZER_AND_PARAMETERS:
                offload = Offload.OPTIMIZER  # the parameters' is stage 3's alone
            yield Setting.OFFLOAD, known(offload.value, "zero_optimization.offload_*")
    elif stage != "auto":
        script.notes.append(f"{label}: zero_optimization.stage: {stage!r} isn't a ZeRO stage")
    micro = whole_number("train_micro_batch_size_per_gpu")
    steps = whole_number("gradient_accumulation_steps")
    whole = whole_number("train_batch_size")
    if micro and whole and config.get("gradient_accumulation_steps") is None:
        once = micro * script.world
        steps = whole // once if whole % once == 0 else None
    if origin is Origin.CONFIG:
        _refuse_contradictions(script, label, micro, steps, whole)
    if micro is not None:
        yield Setting.MICRO_BATCH, known(micro, "train_micro_batch_size_per_gpu")
    if steps is not None:
        yield Setting.ACCUMULATION, known(steps, "gradient_accumulation_steps")
    yield from _sizes(zero, label, script, origin)
    yield from _optimizer(config, label, script, origin)
    ranks = section(config, "tensor_parallel").get("autotp_size")
    if isinstance(ranks, int) and ranks > 1:
        yield Fact.MODEL_PARALLEL, known(ranks, "tensor_parallel.autotp_size")
    dtype = section(config, "data_types").get("grad_accum_dtype")
    yield Fact.FP32_ACCUMULATION, known(dtype == "fp32", "data_types.grad_accum_dtype")
    precision = _precision(config)
    if precision is not None:
        yield Setting.PRECISION, known(precision.value, f"{precision.value}.enabled")


def _refuse_contradictions(
    script: Script, label: str, micro: int | None, steps: int | None, whole: int | None
) -> None:
    """Refuses now what transformers and DeepSpeed would refuse when the training starts.

    That flags must agree is the Trainer's rule (transformers/integrations/deepspeed.py,
    `fill_match`), that the numbers of a configuration must is DeepSpeed's own
    (deepspeed/runtime/config.py, `_batch_assertion`).

    Raises:
        LaunchError: two numbers that must agree don't; the message has both, with their places.
    """
    for key, value, flag in (
        ("train_micro_batch_size_per_gpu", micro, "per_device_train_batch_size"),
        ("gradient_accumulation_steps", steps, "gradient_accumulation_steps"),
    ):
        given = script.flags.get(flag) if script.takes_all else None
        text = "" if given is None else str(given.value)
        if given is not None and value is not None and text.isdecimal() and int(text) != value:
            problem = f"{label}: {key} is {value}, but {given.source} is {text}"
            raise LaunchError(ExitCode.USAGE, problem, f'write "auto" for {key} in the file')
    if micro and steps and whole and micro * steps * script.world != whole:
        workers = count_of(script.world, "worker")
        product = f"{micro} x {steps} x {workers} = {micro * steps * script.world}"
        problem = (
            f"{label}: train_batch_size is {whole}, but micro batch x accumulation is {product}"
        )
        raise LaunchError(ExitCode.USAGE, problem, 'leave one of them out, or write "auto"')


def _optimizer(config: Config, label: str, script: Script, origin: Origin) -> Iterator[Statement]:
    """The optimizer that DeepSpeed creates; otherwise the script has its own."""
    name = section(config, "optimizer").get("type")
    if name is None:
        return
    source = f"{label}: optimizer.type"
    kind = optimizer_named(str(name))
    if kind is Optimizer.SGD and section(section(config, "optimizer"), "params").get("momentum"):
        kind = Optimizer.LION  # one state
    if kind is None:
        script.unmodelled.append(f"{source}: {name!r} isn't known, so AdamW's states are assumed")
    else:
        yield Fact.OPTIMIZER, Known(kind.value, origin, source)
    in_torch = section(section(config, "optimizer"), "params").get("torch_adam")
    yield Fact.FUSED_STEP, Known(not in_torch, origin, source)


def _sizes(zero: Config, label: str, script: Script, origin: Origin) -> Iterator[Statement]:
    """Buckets and thresholds, in elements; "auto" is filled in by the framework."""
    for fact, key in SIZES.items():
        value = zero.get(key)
        source = f"{label}: zero_optimization.{key}"
        is_switch = fact in SWITCHES
        stated = value if isinstance(value, bool) else _elements(value)
        if stated is not None and isinstance(stated, bool) is is_switch:
            yield fact, Known(stated, origin, source)
        elif value not in (None, "auto"):
            kind = "neither true nor false" if is_switch else "not a number of elements"
            script.notes.append(f"{source}: {value!r} is {kind}")
    automatic = [fact for fact in AUTO if zero.get(SIZES[fact]) == "auto"]
    if not automatic:
        return
    source = f"{label}: zero_optimization.{SIZES[automatic[0]]}"
    yield Fact.AUTO_BUCKETS, Known(True, origin, source)
    for fact, size in AUTO.items():
        if zero.get(SIZES[fact]) is None:
            yield fact, Known(size, Origin.DEFAULT, f"DeepSpeed's default of {SIZES[fact]}")


def _elements(value: object) -> int | None:
    """A whole number, which may also be written as 5e8."""
    whole = isinstance(value, int | float) and value >= 0 and value % 1 == 0
    return int(value) if isinstance(value, int | float) and whole else None


def _precision(config: Config) -> Precision | None:
    """The enabled precision, else fp32; None where it is left to the framework ("auto")."""
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
