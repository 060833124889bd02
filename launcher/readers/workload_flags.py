"""Reads what decides the memory beside batch and stage: lengths, optimizer, attention, loss."""

from __future__ import annotations

from collections.abc import Iterator

from ..settings import Attention, Fact, Loss, Objective, Origin, Precision
from ..workload import Known, Statement
from .script import TRUE, Given, Script
from .words import ATTENTIONS, optimizer_named

LENGTHS = (
    "max_seq_length",
    "max_seq_len",
    "model_max_length",
    "cutoff_len",
    "max_length",
    "block_size",
)
"""TRL's older name, LLaVA's, Qwen's and MiniCPM-V's, LLaMA-Factory's, TRL's and ms-swift's, the
language modelling examples of transformers."""
FUSED = ("use_liger_kernel", "use_liger", "enable_liger_kernel")
PREFERENCES = {"dpo", "kto", "orpo", "cpo", "simpo", "ipo", "rm"}
WITHOUT_REFERENCE = {"orpo", "cpo", "simpo", "rm"}
TRAINERS = {
    "DPOTrainer": "dpo",
    "KTOTrainer": "kto",
    "ORPOTrainer": "orpo",
    "CPOTrainer": "cpo",
    "RewardTrainer": "rm",
}
DTYPES = {
    "bfloat16": Precision.BF16,
    "bf16": Precision.BF16,
    "float16": Precision.FP16,
    "fp16": Precision.FP16,
    "half": Precision.FP16,
    "float32": Precision.FP32,
    "fp32": Precision.FP32,
}


def read(script: Script) -> Iterator[Statement]:
    """Lengths, optimizer, attention, loss, objective and the type of the loaded weights."""
    yield from _length(script)
    yield from _optimizer(script)
    yield from _attention(script)
    yield from _loss(script)
    yield from _objective(script)
    yield from _loaded(script)
    yield from _allocator(script)


def _known(given: Given, value: object) -> Known:
    return Known(value, given.origin, given.source)  # type: ignore[arg-type]


def _length(script: Script) -> Iterator[Statement]:
    for name in LENGTHS:
        length = script.number(name) if script.text(name) else None
        if length is not None:
            yield Fact.SEQUENCE_LENGTH, _known(length, length.value)
            return
    query, passage = script.number("query_max_len"), script.number("passage_max_len")
    if passage is not None:
        # FlagEmbedding: a query and a group of passages are one sample, each padded by itself.
        group = script.number("train_group_size")
        passages = int(group.value) if group is not None else 8
        total = passages * int(passage.value) + (int(query.value) if query else 0)
        yield Fact.SEQUENCE_LENGTH, Known(total, passage.origin, passage.source)


def _optimizer(script: Script) -> Iterator[Statement]:
    named = script.text("optim") or script.text("optimizer")
    if named is None:
        return
    optimizer = optimizer_named(str(named.value))
    if optimizer is None:
        script.notes.append(
            f"{named.source}: {named.value!r} isn't known, AdamW's states are taken"
        )
    else:
        yield Fact.OPTIMIZER, _known(named, optimizer.value)


def _attention(script: Script) -> Iterator[Statement]:
    for name in ("attn_implementation", "attn_impl", "flash_attn"):
        named = script.text(name)
        if named is not None:
            kind = ATTENTIONS.get(str(named.value).lower())
            if kind is not None:
                yield Fact.ATTENTION, _known(named, kind.value)
                return
    for name in ("use_flash_attn", "use_flash_attention", "flash_attn"):
        switch = script.boolean(name) if name in script.flags else None
        if switch is not None and switch.value:
            yield Fact.ATTENTION, _known(switch, Attention.FLASH.value)
            return


def _loss(script: Script) -> Iterator[Statement]:
    for name in FUSED:
        switch = script.boolean(name)
        if switch is not None and switch.value:
            yield Fact.LOSS, _known(switch, Loss.FUSED.value)
            return
    kind = script.text("loss_type")
    if kind is not None and "chunked" in str(kind.value):
        yield Fact.LOSS, _known(kind, Loss.CHUNKED.value)


def _objective(script: Script) -> Iterator[Statement]:
    named = script.text("rlhf_type") or script.text("stage")
    kind, where = (str(named.value).lower(), named) if named is not None else ("", None)
    if kind not in PREFERENCES:
        trainer = next((one for one in TRAINERS if one in script.names), None)
        if trainer is None:
            return
        kind, where = TRAINERS[trainer], Given(trainer, Origin.FLAG, f"the script uses {trainer}")
    assert where is not None, "a kind was named by a flag or by the script"
    yield Fact.OBJECTIVE, Known(Objective.PREFERENCE.value, where.origin, where.source)
    free = script.boolean("reference_free") or script.boolean("precompute_ref_log_probs")
    held = kind not in WITHOUT_REFERENCE and not (free is not None and free.value)
    yield Fact.REFERENCE_MODEL, Known(held, where.origin, where.source)


def _loaded(script: Script) -> Iterator[Statement]:
    for name in ("torch_dtype", "dtype", "model_dtype"):
        named = script.text(name)
        kind = DTYPES.get(str(named.value).lower().removeprefix("torch.")) if named else None
        if named is not None and kind is not None:
            yield Fact.LOADED_PRECISION, _known(named, kind.value)
            return


def _allocator(script: Script) -> Iterator[Statement]:
    """What the user's environment says of torch's allocator; without it the profile decides."""
    for name in (
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_NPU_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
    ):
        if name in script.environment:
            text = script.environment[name].lower().replace(" ", "")
            grows = any(f"expandable_segments:{word}" in text for word in TRUE)
            yield Fact.EXPANDABLE_SEGMENTS, Known(grows, Origin.CONFIG, f"${name}")
            return
