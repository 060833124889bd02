"""Readers determine a framework's training without running the script.

Readers return statements, each with a source; of two with the same name the higher origin takes
precedence, so the order matters only among equal origins. A framework whose program is launched
comes last, as it sets what the libraries below it leave open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain

from ..core.choices import Framework
from ..core.request import LaunchRequest
from ..core.workload import VERSIONED, Statement, Workload
from ..frameworks import accelerate, deepspeed, transformers
from ..frameworks.framework import Script
from ..frameworks.installed import installed
from .not_understood import not_understood
from .readers import (
    model_folder,
    peft_flags,
    preference_flags,
    tied_embeddings,
    vision_flags,
    workload_flags,
)
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
    vision_flags.read,
    preference_flags.read,
    workload_flags.read,
)


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
    model, notes = model_folder.read_model_of(script)
    workload = workload.informed(model_folder.statements(script, model))
    workload = workload.informed(vision_flags.image_statements(script, model))
    workload = workload.informed(tied_embeddings.statements(script, workload, model))
    vague = not_understood(script.flags)
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
