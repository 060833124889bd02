"""Runs one process as rank 0 until its plan is known, for `plan --ask`.

Models are made on the meta device: no weights are read. Process groups are torch's fake ones, whose
collectives return at once. Nothing here is installed in a worker that trains.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import wrapt

from ..core.choices import Checkpointing, Engine, Framework
from ..core.private_names import FAKE_STORE, FROM_CONFIG, FSDP_BEGINS
from ..core.settings import OF_DDP, Fact, Setting, Value
from ..evidence.asked_alone import VARIABLE, EndOfAskingError
from ..evidence.observations import Observations
from ..evidence.worker_messages import Boundary
from ..workload.config_files.vocabulary import dtype_named
from ..workload.readers.training_arguments import default_mode
from . import asked_models, deepspeed_plugin, fsdp, settling
from .asked_facts import deepspeed_facts, mode_of
from .callers import is_called_by
from .model_facts import NAMES, checkpoints_nothing, facts_of

HUB_WRITES = ("create_repo", "create_commit", "upload_file", "upload_folder", "delete_repo")
SAMPLES = 32
"""Samples of a data set that are inspected for their length."""
ACCELERATORS = ("cuda", "npu", "xpu", "mps")
HOOKED = (
    "accelerate.accelerator",
    "deepspeed.comm.torch",
    "diffusers.models.modeling_utils",
    "huggingface_hub.hf_api",
    FSDP_BEGINS.module,
    "torch.cuda",
    "torch.distributed.distributed_c10d",
    "torch.nn.modules.module",
    "torch.optim.optimizer",
    "transformers.modeling_utils",
    "transformers.trainer",
    "transformers.training_args",
)


def install(module: Any, observations: Observations) -> None:
    """Wraps functions that would read weights, wait for other ranks, need a device, or train."""
    if not os.environ.get(VARIABLE):
        return
    wrap = partial(wrapt.wrap_function_wrapper, module)
    match module.__name__:
        case "accelerate.accelerator":
            wrap("Accelerator.prepare", partial(_prepare, observations))
        case "deepspeed.comm.torch" if hasattr(module, "build_shm_op"):
            wrap("build_shm_op", _nothing)  # compiled for CPUs, which takes a minute or two
        case "diffusers.models.modeling_utils":
            wrap("ModelMixin.from_pretrained", _end)
        case "huggingface_hub.hf_api":
            for name in HUB_WRITES:
                wrap(f"HfApi.{name}", _end)
        case "torch.cuda":
            wrap("set_device", _on_device)
        case "torch.distributed.distributed_c10d":
            wrap("init_process_group", partial(_join, observations))
            wrap("new_group", _group)
            wrap("barrier", _nothing)
            wrap("monitored_barrier", _nothing)
        case FSDP_BEGINS.module:
            wrap(FSDP_BEGINS.path, partial(_begin_sharded, observations))
        case "torch.nn.modules.module":
            for name in ("to", "cuda"):
                wrap(f"Module.{name}", _move)
        case "torch.optim.optimizer":
            module.register_optimizer_step_pre_hook(partial(_step, observations))
        case "transformers.modeling_utils":
            stored = partial(asked_models.load, is_stored=True)
            wrap("PreTrainedModel.from_pretrained", stored)
            wrap("PreTrainedModel.resize_token_embeddings", asked_models.resize)
            asked_models.build_unloaded(module.PreTrainedModel)
            with observations.going_on():
                FROM_CONFIG.of(module.PreTrainedModel)
                wrap(FROM_CONFIG.path, partial(asked_models.load, is_stored=False))
            for name in (f"{switch}_enable" for switch in NAMES):
                if hasattr(module.PreTrainedModel, name):
                    wrap(f"PreTrainedModel.{name}", partial(_switch, observations))
        case "transformers.trainer":
            wrap("Trainer.train", lambda *_: _step(observations))
        case "transformers.training_args":
            wrap("TrainingArguments.__post_init__", _validate)


def _end(wrapped: Any, _instance: Any, _args: Any, _kwargs: Any) -> None:
    """Ends the asking before a call.

    Raises:
        EndOfAskingError: always.
    """
    raise EndOfAskingError(f"{wrapped.__qualname__} isn't called where a script is only asked")


def _nothing(*_call: Any) -> None:
    """Does nothing."""


def _step(observations: Observations, *_call: Any) -> None:
    """The training begins: nothing more will be asked for."""
    settling.answer_at(Boundary.STEP, (), {}, observations)
    raise EndOfAskingError("the training begins")


def _begin_sharded(observations: Observations, *_call: Any) -> None:
    """The first pass of modules under `fully_shard`, which needs their weights."""
    fsdp.see_units(observations)
    _step(observations)


def _has_device() -> bool:
    import torch

    kinds = (getattr(torch, kind, None) for kind in ACCELERATORS)
    return any(kind is not None and kind.is_available() for kind in kinds)


def _on_device(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """A call that a login node has no device for."""
    return wrapped(*args, **kwargs) if _has_device() else None


def _join(
    observations: Observations, wrapped: Any, _instance: Any, _args: Any, _kwargs: Any
) -> None:
    """Joins a world of the planned size whose other ranks don't exist.

    Raises:
        EndOfAskingError: this torch has none.
    """
    store = None
    with observations.going_on():
        store = FAKE_STORE.found()()  # its module registers the backend, too
    if store is None:
        raise EndOfAskingError(FAKE_STORE.sentence)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    wrapped("fake", store=store, rank=rank, world_size=world)


def _group(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Another group of that world, with the fake backend."""
    arguments = inspect.signature(wrapped).bind_partial(*args, **kwargs).arguments
    return wrapped(**{**arguments, "backend": None, "pg_options": None})


def _is_meta(model: Any) -> bool:
    return any(weight.is_meta for weight in model.parameters())


def _move(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Changes only the type of a module on the meta device, or without a device to go to."""
    import torch

    if _has_device() and not _is_meta(instance):
        return wrapped(*args, **kwargs)
    dtypes = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
    return wrapped(*dtypes) if dtypes else instance


def _validate(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Validates arguments on a host without their devices, which have no bf16 there.

    What they ask for has been reported, and is in force afterwards.
    """
    names = () if _has_device() else ("bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval")
    asked = {name: getattr(instance, name) for name in names if hasattr(instance, name)}
    for name, value in asked.items():
        setattr(instance, name, False if value else value)
    wrapped(*args, **kwargs)
    for name, value in asked.items():
        setattr(instance, name, value)


def facts_of_trainer(given: Mapping[str, Any], arguments: Any) -> dict[str, Value | None]:
    """Additional facts of a process that is asked alone: unlike a training, it reads data."""
    if not os.environ.get(VARIABLE):
        return {}
    facts: dict[str, Value | None] = {}
    names = [name for name in NAMES if hasattr(arguments, name)][:1]
    if any(getattr(arguments, name) for name in names):
        kwargs = getattr(arguments, f"{names[0]}_kwargs", None)
        facts[Setting.GRADIENT_CHECKPOINTING] = _mode(kwargs)
    data, collate = given.get("train_dataset"), given.get("data_collator")
    micro = arguments.per_device_train_batch_size
    return {**facts, Fact.SEQUENCE_LENGTH: _length(data, collate, micro)}


def _length(data: Any, collate: Any, micro: int) -> int | None:
    """The tokens of a text in a batch of the longest of some samples; None if unknown.

    Args:
        data: a data set; the samples are spread over it.
        collate: makes a batch of them; None for padding to the longest.
        micro: the samples of a batch.
    """
    with suppress(Exception):  # a data set may be anything
        step = max(1, -(-len(data) // SAMPLES))
        samples = [data[place] for place in range(0, len(data), step)]
        samples.sort(key=lambda sample: len(sample["input_ids"]), reverse=True)
        longest = len(samples[0]["input_ids"])
        with suppress(Exception):
            words, texts = collate(samples[:micro])["input_ids"], len(samples[:micro])
            return min(int(words.shape[-1]), int(words.numel()) // texts)
        return longest
    return None


def _mode(kwargs: Any) -> str | None:
    """The implementation by the switch's kwargs, or by the default of this transformers."""
    import transformers

    default = default_mode({"transformers": transformers.__version__})
    return mode_of(kwargs) or (default and default[0].value)


def _switch(
    observations: Observations, wrapped: Any, _instance: Any, args: Any, kwargs: Any
) -> None:
    """Notes that a script switches checkpointing on itself."""
    wrapped(*args, **kwargs)
    observations.see(gradient_checkpointing=_mode(next(iter((*args, *kwargs.values())), None)))


def _prepare(
    observations: Observations, wrapped: Any, instance: Any, args: Any, kwargs: Any
) -> Any:
    """Asks when the user's own loop passes its model and its loader to accelerate."""
    import torch

    model = next((value for value in args if isinstance(value, torch.nn.Module)), None)
    if model is None or is_called_by("transformers"):
        return wrapped(*args, **kwargs)
    facts = _facts_of(instance, model, args, observations)
    framework = Framework.ACCELERATE.value
    settling.answer_at(Boundary.PREPARE, (), facts, observations, framework=framework, model=model)
    return wrapped(*args, **kwargs)


def _facts_of(
    accelerator: Any, model: Any, args: Any, observations: Observations
) -> dict[str, Value | None]:
    """The settings of an Accelerator, its model and its first loader."""
    import torch

    facts = facts_of(model, observations)
    half = dtype_named(str(accelerator.mixed_precision))  # None for `no`
    loaders = (each for each in args if isinstance(each, torch.utils.data.DataLoader))
    loader = next(loaders, None)
    is_split = getattr(accelerator, "split_batches", False)
    if loader is not None and loader.batch_size and not is_split:
        facts[Setting.MICRO_BATCH] = micro = loader.batch_size
        facts[Fact.SEQUENCE_LENGTH] = _length(loader.dataset, loader.collate_fn, micro)
    facts[Setting.ACCUMULATION] = int(accelerator.gradient_accumulation_steps)
    facts[Setting.PRECISION] = half or facts.get(Fact.LOADED_PRECISION)
    if checkpoints_nothing(model):
        facts[Setting.GRADIENT_CHECKPOINTING] = Checkpointing.OFF.value
    config = deepspeed_plugin.config_of(getattr(accelerator.state, "deepspeed_plugin", None))
    if config is not None:
        return facts | {
            name: value for name, value in deepspeed_facts(config).items() if value is not None
        }
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if plugin is not None:
        version = getattr(plugin, "fsdp_version", 1)
        return facts | {Fact.ENGINE: Engine.FSDP.value, Fact.FSDP_VERSION: version}
    ddp = getattr(accelerator, "ddp_handler", None)
    facts |= {flag: bool(getattr(ddp, flag.value, False)) for flag in OF_DDP}
    return facts | {Fact.ENGINE: Engine.DDP.value}
