"""Readers determine a framework's training without running the script.

Readers return statements, each with a source; of two with the same name the higher origin takes
precedence, so the order matters only among equal origins. A framework whose program is launched
comes last, as it sets what the libraries below it leave open. Flags that no reader understood are
listed if their names suggest an effect on memory or failures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain

from ..core.choices import Framework
from ..core.request import LaunchRequest
from ..core.workload import VERSIONED, Origin, Statement, Workload
from ..frameworks import accelerate, deepspeed, transformers
from ..frameworks.framework import Flags, Script
from ..frameworks.installed import installed
from .readers import model_flags, peft_flags, preference_flags, workload_flags
from .script.read_script import read_script

OWN_BATCHES = {
    *("batch_sampler", "BatchSampler", "get_train_dataloader"),
    *("split_batches", "dispatch_batches"),
}
"""Names in sources that build batches by other means than a size per rank."""
IN_PART = re.compile(
    r"lora|peft|adapt|requires_grad|freez|froze|trainable|no_grad|inference_mode"
    r"|teacher|student|distil|reward|critic|referen|(^|_)ref(_|$)",
    re.IGNORECASE,
)
"""Words in sources that train only part of a model, or hold other models beside it."""
READERS: tuple[Callable[[Script], Iterable[Statement]], ...] = (
    transformers.read,
    deepspeed.read,
    accelerate.read,
    peft_flags.read,
    model_flags.read,
    preference_flags.read,
    workload_flags.read,
)
MATTERS = re.compile(
    r"lora|adapter|peft|(^|_)d?oft(_|$)|boft|galore|apollo|badam|lisa|quant(?!ile)|(^|_)[248]bit|fp8|fp4"
    r"|offload|zero|stage|checkpointing|recompute|remat|batch|accum|(^|_)length|(^|_)len(_|$)"
    r"|parallel|(^|_)(tp|pp|cp|sp|ep|dp)(_|$)|fsdp|freeze|frozen|(^|_)fix_|tune_|train_only|trainable"
    r"|reference|ref_|reward|teacher|student|critic|actor|vllm|sglang|optim|precision|fp16|bf16"
    r"|dtype|packing|task_type|liger|experts|ema(_|$)|(^|_)kt(_|$)|unsloth|shift_attn|mixture_of_depths"
    r"|config_overrides|num_(hidden_)?layers|max_memory|megatron|swap"
)
"""Names about memory, parallelism, or trained parameters."""
MINOR = re.compile(
    r"(^|_)(eval|test|val|valid|validation|predict|save|saving|log|logging|load_from|resume|push)"
    r"(_|$)|dropout|alpha|bias|path|dir$|file|steps?$|_name$|weight|init|column|seed|beta|scale"
    r"|lr|schedul|warmup|limit|funcs|template|map_batch|num_proc|merge|bnb_4bit|nested|double"
    r"|group_by|within|pretrain_|learning_rate|cls_to_wrap|gather|ratio|overwrite|plugin|delete|preproc|sampler|strategy|server|port|aligner|impl$|coef|(^|_)kl(_|$)|args$|quant\w*_method|fp8_"
)
"""Parts of names without such an effect."""


def read_workload(request: LaunchRequest) -> Workload:
    """Reads everything known about the training.

    Raises:
        LaunchError: the script, or a file that it names, can't be used.
    """
    if request.is_program:
        note = "a program run directly (--no-python): its training can't be seen or corrected"
        return Workload(versions=installed(VERSIONED), unmodelled=(note,))
    script = read_script(request)
    workload = Workload(framework=_framework(script), versions=script.versions)
    for reader in READERS:
        workload = workload.informed(reader(script))
    if script.owner and script.owner.read:
        workload = workload.informed(script.owner.read(script))
    model, notes = model_flags.read_model_of(script)
    workload = workload.informed(model_flags.from_scratch(script, model))
    workload = workload.informed(model_flags.image_statements(script, model))
    workload = workload.informed(peft_flags.tied_statements(script, workload, model))
    vague = _not_understood(script.flags)
    return replace(
        workload,
        notes=tuple(dict.fromkeys(script.notes)),
        unmodelled=tuple(dict.fromkeys((*script.unmodelled, *notes))),
        not_understood=vague,
        makes_batches=not script.words.named.isdisjoint(OWN_BATCHES),
        trains_all=script.words.is_all and not vague and not _names_parts(script),
        model=model,
    )


def _names_parts(script: Script) -> bool:
    """Whether the source or a flag mentions adapters, frozen weights or further models."""
    words = (script.words.named, script.words.set, script.flags.all)
    return any(map(IN_PART.search, chain.from_iterable(words)))


def _framework(script: Script) -> Framework:
    """The owner of the training loop, by the script's imports and flags."""
    trainers = {"Trainer", "Seq2SeqTrainer", "TrainingArguments", "HfArgumentParser", "trl"}
    if script.owner or script.names & trainers or transformers.has_trainer_flags(script):
        return Framework.TRANSFORMERS
    if "accelerate" in script.names:
        return Framework.ACCELERATE
    return Framework.NONE


def _not_understood(flags: Flags) -> tuple[str, ...]:
    """Flags and keys of files, as written, that no reader looked up and that aren't off."""
    understood = {flags.all[name].source for name in flags.looked_up if name in flags.all}
    return tuple(
        dict.fromkeys(
            flag.source
            for name, flag in flags.all.items()
            if flag.origin is not Origin.DEFAULT
            and flag.source not in understood
            and MATTERS.search(name)
            and not MINOR.search(name)
            and not flag.is_negative
        )
    )
