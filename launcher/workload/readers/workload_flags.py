"""Reads other settings that affect memory: lengths, optimizer, attention, loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from ...core.choices import Attention, Loss, Optimizer, Output
from ...core.model import output_of
from ...core.quantities import count_of
from ...core.settings import Fact
from ...core.workload import Known, Origin, Statement
from ...frameworks.config_files.vocabulary import (
    STEPS,
    attention_named,
    dtype_named,
    optimizer_named,
)
from ...frameworks.framework import FALSE, TRUE, Script
from ...frameworks.transformers import TRANSFORMERS
from ..script.calls import SPREAD

LENGTHS = (
    "max_seq_length",
    "max_seq_len",
    "model_max_length",
    "cutoff_len",
    "max_length",
    "block_size",
    "seq_length",
    "seq_len",
)
"""Flags for the sequence length: TRL's older name, InternVL's and DeepSpeed-Chat's, LLaVA's, Qwen's
and MiniCPM-V's, LLaMA-Factory's, TRL's and ms-swift's, transformers' language modelling examples,
Megatron's and others'."""
FUSED_LAYERS = ("use_liger_kernel", "use_liger", "enable_liger_kernel")
FUSED_LOSS = "use_liger_loss"
"""Liger's switches: of all its kernels, and of its loss alone."""
LOW_RANK = ("use_galore", "use_apollo", "use_badam")
PARALLEL = (
    *("sequence_parallel_size", "sequence_parallel_degree", "context_parallel_size", "sp_size"),
    *("tensor_parallel_size", "tensor_model_parallel_size", "tp_size"),
    *("pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size", "cp_size"),
)
"""Flags for parallelism: ms-swift's, Megatron's, InternVL's and others'."""
DTYPES = ("torch_dtype", "dtype", "model_dtype")
"""Flags for the dtype; a script's own option of this name may mean something else."""
PACKING = ("packing", "neat_packing")
"""Flags for packing: ms-swift's and trl's; LLaMA-Factory's."""
AMONG_SAMPLES = ("infonce", "online_contrastive")
"""ms-swift losses that compare a micro batch's samples (swift/loss/embedding.py)."""
ONE_STATE = ("use_muon", "use_adam_mini")
"""Switches of LLaMA-Factory and ms-swift that replace the optimizer."""


def read(script: Script) -> Iterator[Statement]:
    """Parallelism, lengths, optimizer, attention, loss and the loaded weights' dtype."""
    yield from _parallel(script)
    yield from _length(script)
    yield from _optimizer(script)
    yield from _attention(script)
    yield from _loss(script)
    yield from _loaded(script)
    yield from _output(script)
    yield from _spread(script)
    yield from _allocator(script)
    for name in PACKING:
        switch = script.boolean(name)
        if switch is not None:
            yield Fact.PACKED, switch.known(switch.value)


def _parallel(script: Script) -> Iterator[Statement]:
    for name in PARALLEL:
        ranks = script.number(name) if script.text(name) else None
        if ranks is not None and int(ranks.value) > 1:
            script.unmodelled.append(f"{ranks.source} {ranks.value}: its memory isn't modelled")
            yield Fact.MODEL_PARALLEL, ranks.known(ranks.value)
            return


def _length(script: Script) -> Iterator[Statement]:
    prompt, answer = script.number("max_prompt_length"), script.number("max_completion_length")
    stated = [name for name in LENGTHS if script.text(name)]
    for name in sorted(stated, key=lambda name: -script.flags[name].origin):
        if str(script.flags[name].value).lower() in ("-1", "none"):
            continue  # no limit (ms-swift 2.x, trl)
        length = script.number(name)
        if length is not None:
            yield Fact.SEQUENCE_LENGTH, length.known(length.value)
            return
    if prompt is not None and answer is not None:
        source = f"{prompt.source} + {answer.source}"
        total = int(prompt.value) + int(answer.value)
        yield Fact.SEQUENCE_LENGTH, Known(total, min(prompt.origin, answer.origin), source)
    yield from _group(script)


def _group(script: Script) -> Iterator[Statement]:
    """FlagEmbedding's lengths: a sample is a query and a group of passages, padded separately.

    A reranker joins the query to each passage (FlagEmbedding/abc/finetune/*/AbsArguments.py).
    """
    passage = script.number("passage_max_len")
    if passage is None:
        return
    query, size = script.number("query_max_len"), script.number("train_group_size")
    queries = 32 if query is None else int(query.value)
    passages = 8 if size is None else int(size.value)
    again = passages if "reranker" in script.program else 1
    total = passages * int(passage.value) + again * queries
    source = f"{passage.source}, {count_of(passages, 'passage')} and {again} times the query"
    # Each is a separate sequence, padded to the longest: their sum is an upper bound.
    yield Fact.SEQUENCE_LENGTH, Known(total, min(passage.origin, Origin.SCRIPT), source)
    if again == 1:
        negatives = f"{passage.source}: the passages of a batch are compared with every query"
        yield Fact.LOSS_SPANS_BATCH, Known(True, passage.origin, negatives)


def _optimizer(script: Script) -> Iterator[Statement]:
    if switch := script.on(*LOW_RANK):
        script.unmodelled.append(f"{switch.source}: AdamW's states are assumed")
        return
    if switch := script.on(*ONE_STATE):
        yield Fact.OPTIMIZER, switch.known(Optimizer.LION.value)
        return
    # ms-swift's `optimizer` names a plugin, which outranks `optim`.
    named = script.first("optimizer", "optim")
    if named is None:
        if script.takes_all and script.leaves("optim"):
            yield Fact.OPTIMIZER, TRANSFORMERS.default("optim", Optimizer.ADAMW.value)
        return
    optimizer = optimizer_named(str(named.value))
    if optimizer is None:
        note = f"{named.source}: {named.value!r} isn't known, so AdamW's states are assumed"
        script.unmodelled.append(note)
    else:
        yield Fact.OPTIMIZER, named.known(optimizer.value)
    fused = STEPS.get(str(named.value))
    if fused is not None:
        yield Fact.FUSED_STEP, named.known(fused)


def _attention(script: Script) -> Iterator[Statement]:
    named = _first_known(
        script, ("attn_implementation", "attn_impl", "flash_attn"), attention_named
    )
    if named is not None:
        yield Fact.ATTENTION, named
        return
    for name in ("use_flash_attn", "use_flash_attention", "flash_attn"):
        flag = script.flags.get(name)
        # Non-boolean values mean the model's default: ms-swift's `auto`.
        is_switch = flag is not None and (
            flag.value is None or str(flag.value).lower() in TRUE + FALSE
        )
        if is_switch and (switch := script.on(name)):
            yield Fact.ATTENTION, switch.known(Attention.FLASH.value)
            return


def _loss(script: Script) -> Iterator[Statement]:
    if compiled := script.on("torch_compile"):
        yield Fact.COMPILED, compiled.known(value=True)
    if switch := script.on(*FUSED_LAYERS, "torch_compile"):
        yield Fact.FUSED_LAYERS, switch.known(value=True)
    for name in (*FUSED_LAYERS, FUSED_LOSS):
        switch = script.on(name)
        if switch is not None and _fuses(script, name):
            yield Fact.LOSS, switch.known(Loss.FUSED.value)
            return
    kind = script.text("loss_type")
    if kind is not None and str(kind.value) in AMONG_SAMPLES:
        yield Fact.LOSS_SPANS_BATCH, kind.known(value=True)
    if kind is not None and "chunked" in str(kind.value):
        yield Fact.LOSS, kind.known(Loss.CHUNKED.value)


def _fuses(script: Script, name: str) -> bool:
    """Whether Liger's kernels include the fused projection and loss.

    LLaMA-Factory leaves it out if the trainer needs logits (model_utils/liger_kernel.py);
    `liger_kernel_config` can turn it off (transformers/training_args.py).
    """
    stage = script.text("stage")
    if name == "enable_liger_kernel":
        return stage is None or str(stage.value) in ("pt", "sft")
    config = script.text("liger_kernel_config")
    text = "" if config is None else str(config.value).replace('"', "'").replace(" ", "")
    return "'fused_linear_cross_entropy':false" not in text.lower()


def _loaded(script: Script) -> Iterator[Statement]:
    names = [name for name in DTYPES if name == DTYPES[0] or not script.declares(name)]
    named = _first_known(script, names, dtype_named)
    if named is not None:
        yield Fact.LOADED_PRECISION, named


def _output(script: Script) -> Iterator[Statement]:
    """The output kind: scores are possible if the source names such a class."""
    if any(output_of(name) is Output.SCORES for name in script.words.named):
        source = "the class of the model isn't known"
        yield Fact.OUTPUT, Known(Output.VOCABULARY.value, Origin.DEFAULT, source)


def _spread(script: Script) -> Iterator[Statement]:
    """Whether a single process splits the model over its devices: `device_map="auto"`."""
    if not script.may_split:
        return
    flag = script.text("device_map")
    if flag is not None and str(flag.value) in SPREAD:
        yield Fact.DEVICE_MAP, flag.known(value=True)
    elif script.decides("device_map"):
        yield Fact.DEVICE_MAP, Known(True, Origin.DEFAULT, "device_map in the script's source")


def _first_known(
    script: Script, names: Iterable[str], kind_of: Callable[[str], StrEnum | None]
) -> Known | None:
    """The value of the first flag with a known value."""
    for name in names:
        named = script.text(name)
        kind = None if named is None else kind_of(str(named.value))
        if named is not None and kind is not None:
            return named.known(kind.value)
    return None


def _allocator(script: Script) -> Iterator[Statement]:
    """The allocator configuration in the user's environment; else the profile decides."""
    emptied = script.number("torch_empty_cache_steps")
    if emptied is not None:
        yield Fact.CACHE_EMPTIED, emptied.known(value=True)
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
