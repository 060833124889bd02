"""Reads whether samples are pairs, and which other models are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.choices import Adapter, Objective, Output
from ...core.settings import Fact
from ...core.workload import Known, Origin, Statement
from ...frameworks.framework import Argument, Script
from ...frameworks.trl import NAMED, SPANNING, TRAINERS
from ..models.from_folder import read_model
from .peft_flags import adapter_of

JUDGES = {
    "gkd": ("teacher_model", "teacher_model_name_or_path"),
    "ppo": ("reward_model", "reward_model_path"),
}
"""Methods with another model, and its flags: ms-swift's and trl's."""
PAIRED = {"dpo", "ipo", "orpo", "cpo", "simpo", "rm"}
"""Methods with a chosen and a rejected sequence per sample, unlike KTO."""
REFERENCED = {"dpo", "ipo", "kto"}
REFERENCES = ("ref_model", "ref_model_id_or_path", "ref_model_name_or_path")
WITHOUT = ("reference_free", "precompute_ref_log_probs")
ADAPTING = {"LoraConfig", "get_peft_model"}
"""Names of which any means that a script may add adapters regardless of flags."""


def read(script: Script) -> Iterator[Statement]:
    """Objective and reference model of DPO and related methods; nothing for other methods."""
    yield from _spanning(script)
    yield from _trainer(script)
    named = _named(script)
    if named is None:
        return
    kind = str(named.value)
    if kind in JUDGES:
        yield from _judged(script, kind, named)
        return
    if kind == "rm" and not (script.owner and script.owner.rewards_by_logits):
        yield Fact.OUTPUT, named.known(Output.SCORES.value)
    loss = script.text("pref_loss")  # LLaMA-Factory's stage dpo covers three methods
    if kind == "dpo" and loss is not None and loss.value in ("orpo", "simpo"):
        kind, named = str(loss.value), loss
    objective = Objective.PREFERENCE if kind in PAIRED else Objective.SUPERVISED
    yield Fact.OBJECTIVE, named.known(objective.value)
    held = _reference(script, kind, named)
    if held is not None:
        yield Fact.REFERENCE_MODEL, held.known(bool(held.value))


def _spanning(script: Script) -> Iterator[Statement]:
    for name in ("rlhf_type", "stage"):
        flag = script.text(name)
        if flag is not None and str(flag.value).lower() in SPANNING:
            yield Fact.LOSS_SPANS_BATCH, flag.known(value=True)
    for trainer in script.names & set(SPANNING.values()):
        source = f"the script uses {trainer}"
        yield Fact.LOSS_SPANS_BATCH, Known(True, Origin.SCRIPT, source)


def _trainer(script: Script) -> Iterator[Statement]:
    """The trl trainer that a custom script imports."""
    trainers = script.names & NAMED
    if len(trainers) == 1 and "trl" in script.names and not script.owner:
        (name,) = trainers
        yield Fact.TRAINER, Known(name, Origin.SCRIPT, f"the script uses {name}")


def _judged(script: Script, kind: str, named: Argument) -> Iterator[Statement]:
    """GKD's teacher; PPO's reference, reward model and critic, which begins as the reward model.

    With adapters no reference is needed, and ms-swift adds some to the critic too
    (swift/rlhf_trainers/ppo_trainer.py, swift/pipelines/train/rlhf.py; trl's
    examples/scripts/ppo/ppo.py).
    """
    objective = Objective.DISTILLATION if kind == "gkd" else Objective.SUPERVISED
    yield Fact.OBJECTIVE, named.known(objective.value)
    other = script.first(*JUDGES[kind])
    if other is None:
        script.unmodelled.append(f"{named.source}: the memory of the other models isn't counted")
        return
    name = other.words[0] if other.words else str(other.value)
    model = read_model(name, [], script.environment)
    if model is None:
        note = f"{other.source}: its memory isn't counted, since its size is unknown"
        script.unmodelled.append(note)
        return
    adapter = adapter_of(script)
    adapted = adapter.value == Adapter.LORA if adapter else _adapts(script)
    critic = kind == "ppo" and not (adapted and _adapts(script))
    frozen = 2 if kind == "ppo" and not critic else 1
    yield Fact.FROZEN_BESIDE, other.known(frozen * model.parameters)
    if kind == "ppo":
        yield Fact.REFERENCE_MODEL, other.known(not adapted)
    if critic:
        yield Fact.TRAINED_BESIDE, other.known(model.parameters)


def _adapts(script: Script) -> bool:
    """Whether the framework trains adapters unless asked otherwise."""
    return script.owner is not None and script.owner.adapts


def _named(script: Script) -> Argument | None:
    """The method, from a flag, the program, or the imported trainer."""
    known, owner = PAIRED | REFERENCED, script.owner
    for name, methods in (
        ("rlhf_type", known | JUDGES.keys() if owner else known),
        ("stage", known),
    ):
        flag = script.text(name)
        if flag is not None and str(flag.value).lower() in methods:
            return Argument(str(flag.value).lower(), flag.origin, flag.source)
    if owner is not None and "rlhf_type" not in script.flags:
        for word, method in owner.methods.items():
            if word in script.program:
                return Argument(method, Origin.DEFAULT, owner.default("rlhf_type", method).source)
    trainers = [name for name in script.names if name.endswith("Trainer")]
    if len(trainers) != 1 or trainers[0] not in TRAINERS:
        return None
    return Argument(TRAINERS[trainers[0]], Origin.SCRIPT, f"the script uses {trainers[0]}")


def _reference(script: Script, kind: str, named: Argument) -> Argument | None:
    """Whether a reference copy of the model is loaded; None if unknown.

    Adapters need no copy: without them the model is its own reference (trl/trainer/dpo_trainer.py,
    src/llamafactory/train/trainer_utils.py, swift/arguments/rlhf_args.py).
    """
    if kind not in REFERENCED:
        return Argument(False, named.origin, named.source)
    if flag := script.first(*REFERENCES):
        return Argument(True, flag.origin, flag.source)
    if switch := script.on(*WITHOUT):
        return Argument(False, switch.origin, switch.source)
    adapter = adapter_of(script)
    if adapter is not None:
        needed = adapter.value != Adapter.LORA
        return Argument(needed, adapter.origin, f"{named.source}, {adapter.source}")
    if _adapts(script):
        return Argument(False, Origin.DEFAULT, f"{named.source}, adapters by default")
    return None if script.names & ADAPTING else Argument(True, named.origin, named.source)
