"""A worker's facts about trl's trainers, which aren't installed here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.core.settings import Fact
from safe_launch.guards.transformers import trl_facts

SFT = type("SFTTrainer", (), {"__module__": "trl.trainer.sft_trainer"})
GKD = type("GKDTrainer", (SFT,), {"__module__": "trl.experimental.gkd.gkd_trainer"})
GRPO = type("GRPOTrainer", (), {"__module__": "trl.trainer.grpo_trainer"})
MASKING = type("DataCollatorForLanguageModeling", (), {"__module__": "transformers.data"})
OWN = type("DataCollatorForLanguageModeling", (), {"__module__": "trl.trainer.sft_trainer"})


def trainer(kind: type, collator: type = OWN, pad: int = 2, **arguments: Any) -> Any:
    """A trainer with these arguments and 2 as end token."""
    one = kind()
    one.args = SimpleNamespace(**arguments)
    one.data_collator = collator()
    one.data_collator.mlm = False
    one.processing_class = SimpleNamespace(eos_token_id=2, pad_token_id=pad)
    return one


@pytest.mark.parametrize(
    ("module", "expected"), [("__main__", "SFTTrainer"), ("llamafactory.train", None)]
)
def test_a_class_that_derives_from_one(module: str, expected: str | None) -> None:
    """A script's class counts; a package's may contain a fix."""
    kind = type("CustomTrainer", (SFT,), {"__module__": module})
    assert trl_facts(trainer(kind)).get(Fact.TRAINER) == expected


@pytest.mark.parametrize(
    ("kind", "collator", "pad", "expected"),
    [
        (SFT, MASKING, 2, True),
        (SFT, MASKING, 0, False),
        (SFT, OWN, 2, False),
        (GKD, OWN, 2, True),
        (GKD, OWN, 0, False),
    ],
)
def test_the_end_token_in_the_loss(kind: type, collator: type, pad: int, expected: bool) -> None:
    """It is ignored if it is also the masked padding, by the collator or GKD."""
    facts = trl_facts(trainer(kind, collator, pad))
    assert facts[Fact.TRAINER] == kind.__name__
    assert facts[Fact.PAD_IS_END] is expected


@pytest.mark.parametrize(
    ("arguments", "fact", "expected"),
    [
        (
            {"mask_truncated_completions": True, "loss_type": "dapo"},
            Fact.TRUNCATED_MASKED,
            True,
        ),
        (
            {"mask_truncated_completions": True, "loss_type": "bnpo"},
            Fact.TRUNCATED_MASKED,
            False,
        ),
        (
            {"mask_truncated_completions": False, "loss_type": "dapo"},
            Fact.TRUNCATED_MASKED,
            False,
        ),
        ({"top_entropy_quantile": 0.2}, Fact.ENTROPY_SELECTED, True),
        ({"top_entropy_quantile": 1.0}, Fact.ENTROPY_SELECTED, False),
        ({}, Fact.ENTROPY_SELECTED, False),
        ({"use_liger_kernel": True}, Fact.LIGER, True),
    ],
)
def test_what_grpo_is_asked_for(arguments: dict[str, Any], fact: Fact, expected: bool) -> None:
    """The facts come from the arguments of any version."""
    assert trl_facts(trainer(GRPO, **arguments))[fact] is expected
