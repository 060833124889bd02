"""Runs one process as rank 0 until its plan is known, for `plan --ask`.

Models are created on the meta device without reading weights. Process groups use torch's fake
backend, whose collectives return at once. Nothing here is installed in a training worker.
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
from ..evidence.observations import observations
from ..evidence.worker_messages import ASKED_ALONE, Boundary, EndOfQueryError
from ..frameworks.config_files.vocabulary import default_mode, dtype_named
from . import deepspeed_plugin, fsdp, meta_models, settling
from .callers import is_called_by
from .deepspeed_plugin import deepspeed_facts
from .model_facts import NAMES, checkpoints_nothing, facts_of
from .trainer_arguments import mode_of

HUB_WRITES = ("create_repo", "create_commit", "upload_file", "upload_folder", "delete_repo")
SAMPLES = 32
"""Number of data set samples inspected for their length."""
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


def install(module: Any) -> None:
    """Wraps functions that read weights, wait for other ranks, need a device, or train."""
    if not os.environ.get(ASKED_ALONE):
        return
    wrap = partial(wrapt.wrap_function_wrapper, module)
    match module.__name__:
        case "accelerate.accelerator":
            wrap("Accelerator.prepare", _prepare)
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
            wrap("init_process_group", _join)
            wrap("new_group", _group)
            wrap("barrier", _nothing)
            wrap("monitored_barrier", _nothing)
        case FSDP_BEGINS.module:
            wrap(FSDP_BEGINS.path, _begin_sharded)
        case "torch.nn.modules.module":
            for name in ("to", "cuda"):
                wrap(f"Module.{name}", _move)
        case "torch.optim.optimizer":
            module.register_optimizer_step_pre_hook(_step)
        case "transformers.modeling_utils":
            stored = partial(meta_models.load, is_stored=True)
            wrap("PreTrainedModel.from_pretrained", stored)
            wrap("PreTrainedModel.resize_token_embeddings", meta_models.resize)
            meta_models.build_unloaded(module.PreTrainedModel)
            with observations.going_on():
                FROM_CONFIG.of(module.PreTrainedModel)
                wrap(FROM_CONFIG.path, partial(meta_models.load, is_stored=False))
            for name in (f"{switch}_enable" for switch in NAMES):
                if hasattr(module.PreTrainedModel, name):
                    wrap(f"PreTrainedModel.{name}", _switch)
        case "transformers.trainer":
            wrap("Trainer.train", _step)
        case "transformers.training_args":
            wrap("TrainingArguments.__post_init__", _validate)


def _end(wrapped: Any, _instance: Any, _args: Any, _kwargs: Any) -> None:
    """Ends the query before a call.

    Raises:
        EndOfQueryError: always.
    """
    raise EndOfQueryError(f"{wrapped.__qualname__} isn't called while plan --ask runs the script")


def _nothing(*_call: Any) -> None:
    """Does nothing."""


def _step(*_call: Any) -> None:
    """Ends the query as training begins."""
    settling.answer_at(Boundary.STEP, (), {})
    raise EndOfQueryError("the training begins")


def _begin_sharded(*_call: Any) -> None:
    """Ends the query at the first pass of modules under `fully_shard`, which needs weights."""
    fsdp.see_units()
    _step()


def _has_device() -> bool:
    import torch

    kinds = (getattr(torch, kind, None) for kind in ACCELERATORS)
    return any(kind is not None and kind.is_available() for kind in kinds)


def _on_device(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Skips a call that needs a device, if the host has none."""
    return wrapped(*args, **kwargs) if _has_device() else None


def _join(wrapped: Any, _instance: Any, _args: Any, _kwargs: Any) -> None:
    """Joins a fake process group of the planned size.

    Raises:
        EndOfQueryError: this torch has no fake process group.
    """
    store = None
    with observations.going_on():
        store = FAKE_STORE.imported()()  # its module registers the backend, too
    if store is None:
        raise EndOfQueryError(FAKE_STORE.sentence)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    wrapped("fake", store=store, rank=rank, world_size=world)


def _group(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    """Creates another group with the fake backend."""
    arguments = inspect.signature(wrapped).bind_partial(*args, **kwargs).arguments
    return wrapped(**{**arguments, "backend": None, "pg_options": None})


def _is_meta(model: Any) -> bool:
    return any(weight.is_meta for weight in model.parameters())


def _move(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Changes only the dtype of a module on the meta device, or if there is no device."""
    import torch

    if _has_device() and not _is_meta(instance):
        return wrapped(*args, **kwargs)
    dtypes = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
    return wrapped(*dtypes) if dtypes else instance


def _validate(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Validates arguments on a host without an accelerator, which lacks bf16.

    The requested precision has been reported before, and is restored afterwards.
    """
    names = () if _has_device() else ("bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval")
    stated = {name: getattr(instance, name) for name in names if hasattr(instance, name)}
    for name, value in stated.items():
        setattr(instance, name, False if value else value)
    wrapped(*args, **kwargs)
    for name, value in stated.items():
        setattr(instance, name, value)


def facts_of_trainer(passed: Mapping[str, Any], arguments: Any) -> dict[str, Value | None]:
    """Facts available only in a query, which reads data, unlike a training."""
    if not os.environ.get(ASKED_ALONE):
        return {}
    facts: dict[str, Value | None] = {}
    names = [name for name in NAMES if hasattr(arguments, name)][:1]
    if any(getattr(arguments, name) for name in names):
        kwargs = getattr(arguments, f"{names[0]}_kwargs", None)
        facts[Setting.GRADIENT_CHECKPOINTING] = _mode(kwargs)
    data, collate = passed.get("train_dataset"), passed.get("data_collator")
    micro = arguments.per_device_train_batch_size
    return {**facts, Fact.SEQUENCE_LENGTH: _length(data, collate, micro)}


def _length(data: Any, collate: Any, micro: int) -> int | None:
    """Tokens per text in a batch of the longest sampled texts; None if unknown.

    Args:
        data: a data set, sampled at even intervals.
        collate: the collator; None for padding to the longest text.
        micro: samples per batch.
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
    """The checkpointing implementation from the kwargs, or this transformers version's default."""
    import transformers

    default = default_mode({"transformers": transformers.__version__})
    return mode_of(kwargs) or (default and default[0].value)


def _switch(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> None:
    """Notes that the script turns on checkpointing itself."""
    wrapped(*args, **kwargs)
    observations.see(gradient_checkpointing=_mode(next(iter((*args, *kwargs.values())), None)))


def _prepare(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Asks for the plan when a custom loop passes its model and loader to accelerate."""
    import torch

    model = next((value for value in args if isinstance(value, torch.nn.Module)), None)
    if model is None or is_called_by("transformers"):
        return wrapped(*args, **kwargs)
    facts = _facts_of(instance, model, args)
    framework = Framework.ACCELERATE.value
    settling.answer_at(Boundary.PREPARE, (), facts, framework=framework, model=model)
    return wrapped(*args, **kwargs)


def _facts_of(accelerator: Any, model: Any, args: Any) -> dict[str, Value | None]:
    """Settings of an Accelerator, its model and its first loader."""
    import torch

    facts = facts_of(model)
    half = dtype_named(str(accelerator.mixed_precision))  # None for `no`
    loaders = (argument for argument in args if isinstance(argument, torch.utils.data.DataLoader))
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
