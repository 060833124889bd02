"""Reads common scripts' flags for adapters and quantization, and embeddings that peft unties."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ...core.choices import Adapter
from ...core.errors import LaunchError
from ...core.model import Model
from ...core.settings import Fact, Setting
from ...core.workload import Known, Origin, Statement, Workload
from ...frameworks.config_files.vocabulary import KINDS, LORA
from ...frameworks.framework import Argument, Script
from ...frameworks.transformers import TRANSFORMERS, is_trainers

SWITCHES = ("use_lora", "use_peft", "use_peft_lora", "lora_enable")
"""Boolean flags: of MiniCPM-V, Qwen and FlagEmbedding; trl; peft's examples; LLaVA."""
QUANTIZED = ("q_lora", "use_qlora")
"""Boolean flags of Qwen's and MiniCPM-V's scripts, used only with `use_lora`."""
FROZEN_BASE = {
    *("adapter", "bone", "boft", "ia3", "llamapro", "oft", "reft", "vera", "fourierft"),
    *("lora_llm", "freeze"),
}
"""Kinds known only not to train all weights of the model."""
OTHERS = re.compile(
    r"^(use|enable)_(oft|boft|hra|deft|ia3|vera|loha|lokr|adapter|prompt_tuning|prefix_tuning"
    r"|p_tuning|bone|miss|fourierft|road|randlora|vblora|poly|ln_tuning|shira|c3a|osf|trainable_tokens"
    r"|galore|apollo|badam|lisa|llama_pro|reft|psoft|hira|glora)$"
    r"|^lisa_activated_layers$"
)
"""Switches of partial training methods other than LoRA."""
BLOCKWISE = ("use_badam", "use_llama_pro", "lisa_activated_layers")
"""Flags of LLaMA-Factory and ms-swift that train some layers, all at once or in turn."""
PARTS = ("use_llm_lora", "use_backbone_lora")
"""InternVL's adapter ranks in the language model and the vision tower; 0 for none."""
RANKS = ("lora_rank", "lora_r", "lora_dim", *PARTS, "r")
TARGETS = ("target_regex", "target_modules", "lora_target_modules", "lora_target")
SAVED = ("modules_to_save", "lora_modules_to_save", "additional_target")
ALL = {"all", "all-linear", "all_linear"}
DEFAULTS = {"default", "auto", "embedding", "all-embedding", "all-norm"}
"""ms-swift's target names that depend on the model."""
LOADED_IN = (
    *(("load_in_4bit", 4), ("load_in_8bit", 8)),
    *(("use_4bit_quantization", 4), ("use_8bit_quantization", 8)),
)
"""Boolean flags: of transformers and trl; peft's examples."""
BEFOREHAND = {"GPTQConfig", "AwqConfig", "AWQConfig"}
"""transformers configurations of pre-quantized models."""
BITS = ("quantization_bit", "quant_bits", "bits")
ENDS = {"lm_head", "embed_tokens", "wte", "embed_out", "embed_in", "word_embeddings"}
"""Names of input and output embeddings (modeling files of transformers)."""


def read(script: Script) -> Iterator[Statement]:
    """Adapters with rank and targets, and bits of quantized weights.

    Raises:
        LaunchError: two flags exclude each other, so loading the model would fail.
    """
    adapter = adapter_of(script)
    if adapter is not None:
        yield from _adapted(script, adapter)
    if adapter is None or adapter.value == Adapter.LORA:
        yield from _lora(script, wanted=adapter is not None)
    hint = _hint(script) if adapter is None or not adapter.value else None
    if hint:
        yield Fact.ADAPTER_HINTED, Known(True, Origin.FLAG, hint)
    yield from _bits(script)


def adapter_of(script: Script) -> Argument | None:
    """The adapter in the flags: a member of `Adapter`, or empty for another kind.

    None if the flags state nothing.
    """
    for name in KINDS:
        kind = script.text(name)
        if kind is not None:
            word = str(kind.value).lower()
            part = _part_of_full(script) if word == "full" else None
            if part is not None:
                return Argument("", part.origin, part.source)
            value = Adapter.LORA if word in LORA else Adapter.NONE if word == "full" else ""
            return Argument(
                value, kind.origin, f"{kind.source} {word}" if not value else kind.source
            )
    switches = [switch for name in SWITCHES if (switch := script.boolean(name)) is not None]
    parts = [script.flags[name] for name in PARTS if name in script.flags]
    on = [switch for switch in switches if switch.value]
    on += [part for part in parts if not part.is_negative]
    quantized = [switch for name in QUANTIZED if (switch := script.on(name))]
    if on or (quantized and not switches):
        chosen = [*on, *quantized][0]
        return Argument(Adapter.LORA, chosen.origin, chosen.source)
    if {"ModelConfig", "trl"} <= script.names and script.leaves("use_peft"):
        return Argument(Adapter.NONE, Origin.DEFAULT, "trl's default of use_peft")
    if not switches or _other(script) is not None:
        return None
    return Argument(Adapter.NONE, switches[0].origin, switches[0].source)


def _part_of_full(script: Script) -> Argument | None:
    """A flag that limits a full training to some layers at a time."""
    flag = next((each for name in BLOCKWISE if (each := script.flags.get(name))), None)
    return None if flag is None or flag.is_negative else flag


def _other(script: Script) -> Argument | None:
    """A flag for another method than LoRA, whose trained parameters are unknown."""
    flags = (each for name, each in script.flags.all.items() if OTHERS.search(name))
    return next((flag for flag in flags if not flag.is_negative), None)


def _adapted(script: Script, adapter: Argument) -> Iterator[Statement]:
    if not adapter.value:
        word = adapter.source.rpartition(" ")[2]
        script.unmodelled.append(f"{adapter.source}: memory is estimated as if all were trained")
        if word in FROZEN_BASE:
            yield Fact.FROZEN_PARAMETERS, adapter.known(value=True)
        return
    yield Fact.ADAPTER, adapter.known(adapter.value.value)
    if adapter.value is not Adapter.LORA:
        return
    yield Fact.FROZEN_PARAMETERS, adapter.known(value=True)
    words = (*KINDS, *PARTS)
    if is_trainers(script) and not any(script.text(name) for name in words):
        # A model that peft wraps isn't a PreTrainedModel: transformers/trainer.py then lets DDP
        # look for unused parameters by default.
        what = f"ddp_find_unused_parameters with {adapter.source}"
        yield Setting.FIND_UNUSED_PARAMETERS, TRANSFORMERS.default(what, value=True)


def _hint(script: Script) -> str:
    """A hint at adapters that may be unused; empty if none."""
    stated = {name: each for name, each in script.flags.all.items() if each.origin > Origin.DEFAULT}
    for name, flag in stated.items():
        if re.search(r"lora|peft|adapter|(^|_)oft(_|$)", name) and not flag.is_negative:
            return flag.source
    other = _other(script)
    if other is not None:
        return other.source
    named = [name for name in script.names if re.search(r"lora|peft", name, re.IGNORECASE)]
    return f"the script names {min(named)}" if named else ""


def _lora(script: Script, *, wanted: bool) -> Iterator[Statement]:
    """Rank and targets; without an adapter flag, the script may set them."""
    if "ModelConfig" in script.names and "trl" in script.names and wanted:
        source = "trl's default of lora_r"  # trl/trainer/model_config.py
        yield Fact.LORA_RANK, Known(16, Origin.DEFAULT, source)
    for name in RANKS:
        is_asked = name in script.flags and not script.flags[name].is_negative
        rank = script.number(name) if is_asked else None
        if rank is not None and (wanted or name != "r"):
            yield Fact.LORA_RANK, rank.known(rank.value)
            break
    for fact, names in ((Fact.LORA_TARGETS, TARGETS), (Fact.LORA_SAVED, SAVED)):
        for flag in [text for name in names if (text := script.text(name))]:
            words = words_of(flag)
            if not words:
                continue
            lowered = {word.lower() for word in words}
            if fact is Fact.LORA_TARGETS and lowered & ALL:
                more = [word for word in words if word.lower() not in ALL]
                yield fact, flag.known(",".join(["all-linear", *more]))
            elif not lowered & DEFAULTS:
                yield fact, flag.known(",".join(words))
            break


def words_of(flag: Argument) -> list[str]:
    """Splits words separated by commas or spaces, in brackets or as YAML.

    A single regular expression isn't split.
    """
    if isinstance(flag.value, list):
        return [str(item) for item in flag.value]
    words = list(flag.words) or [str(flag.value)]
    text = " ".join(words).strip()
    if text.startswith("[") and text.endswith("]"):
        parts = [part.strip(" '\"") for part in text[1:-1].split(",")]
        return [part for part in parts if part]
    if len(words) == 1 and re.search(r"[\\^$*+?()|{}]", text):
        return [text]
    return [part for part in re.split(r"[,\s]+", text) if part]


def _bits(script: Script) -> Iterator[Statement]:
    loads = [(switch, bits) for name, bits in LOADED_IN if (switch := script.on(name))]
    if len({bits for _, bits in loads}) > 1:
        first, second = loads[0][0].source, loads[-1][0].source
        raise LaunchError(f"{first} and {second}: a model is loaded in 4 or in 8 bits, not in both")
    for switch, bits in loads:
        yield Fact.QUANTIZATION_BITS, switch.known(bits)
        return
    for name in BITS:
        number = script.text(name)
        if number is not None and str(number.value) in ("2", "3", "4", "8"):
            yield Fact.QUANTIZATION_BITS, number.known(int(number.value))
            return
    adapter = adapter_of(script)
    for name in QUANTIZED:
        switch = None if script.declares(name) else script.on(name)
        if switch and adapter and adapter.value == Adapter.LORA:
            yield Fact.QUANTIZATION_BITS, switch.known(4)
            yield Fact.CALIBRATED, switch.known(bool(script.names & BEFOREHAND))
            return
    for name in KINDS:
        kind = script.text(name)
        if kind is not None and str(kind.value).lower() == "qlora":
            yield Fact.QUANTIZATION_BITS, kind.known(4)


def is_end(module: str) -> bool:
    """Whether a module name is the input or output embedding."""
    return module.rpartition(".")[2] in ENDS


def tied_statements(script: Script, workload: Workload, model: Model | None) -> Iterator[Statement]:
    """States full training of an embedding that the model ties and peft unties."""
    saved = workload.known.get(Fact.LORA_SAVED)
    kept = script.boolean("ensure_weight_tying")
    if saved is None or model is None or script.decides("ensure_weight_tying"):
        return
    is_kept = kept is not None and kept.value
    if model.tied and any(map(is_end, str(saved.value).split(","))) and not is_kept:
        yield Fact.TIED_SAVED, replace(saved, value=True)
