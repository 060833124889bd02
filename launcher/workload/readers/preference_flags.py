"""Reads whether samples are pairs of sequences, and whether a reference model is held too."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.settings import Adapter, Fact, Objective, Origin
from ...core.workload import Known, Statement
from ..script.given import Given
from ..script.script import Script
from .peft_flags import adapter_of

PAIRED = {"dpo", "ipo", "orpo", "cpo", "simpo", "rm"}
"""A chosen and a rejected sequence; KTO's sample is one sequence."""
REFERENCED = {"dpo", "ipo", "kto"}
TRAINERS = {
    "DPOTrainer": "dpo",
    "KTOTrainer": "kto",
    "ORPOTrainer": "orpo",
    "CPOTrainer": "cpo",
    "RewardTrainer": "rm",
}
"""trl's."""
REFERENCES = ("ref_model", "ref_model_id_or_path", "ref_model_name_or_path")
WITHOUT = ("reference_free", "precompute_ref_log_probs")
ADAPTING = {"LoraConfig", "get_peft_model"}
"""A script with one of these may add adapters to its model regardless of the flags."""


def read(script: Script) -> Iterator[Statement]:
    """Objective and reference model of DPO and related methods; nothing for other methods."""
    named = _named(script)
    if named is None:
        return
    kind = str(named.value)
    loss = script.text("pref_loss")  # LLaMA-Factory's stage dpo covers three methods
    if kind == "dpo" and loss is not None and loss.value in ("orpo", "simpo"):
        kind, named = str(loss.value), loss
    objective = Objective.PREFERENCE if kind in PAIRED else Objective.SUPERVISED
    yield Fact.OBJECTIVE, Known(objective.value, named.origin, named.source)
    held = _reference(script, kind, named)
    if held is not None:
        yield Fact.REFERENCE_MODEL, Known(bool(held.value), held.origin, held.source)


def _named(script: Script) -> Given | None:
    """The method: named by a flag, by the program, or by the trainer that the script imports."""
    for name in ("rlhf_type", "stage"):
        given = script.text(name)
        if given is not None and str(given.value).lower() in PAIRED | REFERENCED:
            return Given(str(given.value).lower(), given.origin, given.source)
    if script.owner == "swift" and "rlhf" in script.program and "rlhf_type" not in script.flags:
        return Given("dpo", Origin.DEFAULT, "ms-swift's default of rlhf_type")
    found = [trainer for trainer in TRAINERS if trainer in script.names]
    if len(found) != 1:
        return None
    return Given(TRAINERS[found[0]], Origin.SCRIPT, f"the script uses {found[0]}")


def _reference(script: Script, kind: str, named: Given) -> Given | None:
    """Whether a copy of the model is held; None where unknown.

    Adapters need no copy: without them the model is its own reference (trl/trainer/dpo_trainer.py,
    src/llamafactory/train/trainer_utils.py, swift/arguments/rlhf_args.py).
    """
    if kind not in REFERENCED:
        return Given(False, named.origin, named.source)
    for name in REFERENCES:
        given = script.text(name)
        if given is not None:
            return Given(True, given.origin, given.source)
    for name in WITHOUT:
        switch = script.boolean(name)
        if switch is not None and switch.value:
            return Given(False, switch.origin, switch.source)
    adapter = adapter_of(script)
    if adapter is not None:
        needed = adapter.value != Adapter.LORA
        return Given(needed, adapter.origin, f"{named.source}, {adapter.source}")
    if script.owner in ("swift", "llamafactory"):
        return Given(False, Origin.DEFAULT, f"{named.source}, adapters by default")
    return None if script.names & ADAPTING else Given(True, named.origin, named.source)
