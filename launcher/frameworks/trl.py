"""trl: its trainers, by the methods that they train."""

from __future__ import annotations

from .framework import FrameworkRow

TRL = FrameworkRow("TRL", ("trl",), "huggingface/trl", in_log=r"trl/trainer/", on_trainer=True)
TRAINERS = {
    "DPOTrainer": "dpo",
    "KTOTrainer": "kto",
    "ORPOTrainer": "orpo",
    "CPOTrainer": "cpo",
    "RewardTrainer": "rm",
    "GKDTrainer": "gkd",
    "PPOTrainer": "ppo",
}
"""Methods of the trainers that need pairs or another model."""
SPANNING = {"kto": "KTOTrainer", "grpo": "GRPOTrainer", "rloo": "RLOOTrainer"}
"""Methods whose loss compares a micro batch's samples: KTO mixes pairs and refuses a single sample
(trl/trainer/kto_trainer.py), the others need whole groups of answers."""
NAMED = {*TRAINERS, *SPANNING.values(), "SFTTrainer", "BCOTrainer", "GOLDTrainer"}
"""Trainers that a catalogue entry may name."""
