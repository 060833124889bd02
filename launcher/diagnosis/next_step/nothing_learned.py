"""Advises on a training whose printed numbers show that nothing is learned."""

from __future__ import annotations

import math
import re

from .step import Case, Step

STILL = "nothing is learned: {what} is {value} from line {first} to the end"
NORM, LOSS = "the gradient's norm", "the loss"
"""What the message of the evidence in a log is about."""
MESSAGE = re.compile(
    rf"nothing is learned: (?P<what>{NORM}|{LOSS}) is (?P<value>\S+) from line \d+ to the end"
)
LN_2 = round(math.log(2), 3)
"""The loss of DPO and its kin if the policy gives what the reference gives."""
OF_GROUPS = re.compile(r"\breward[\w/]*(?:std|mean)\b|\bgrpo\b|\badvantages?\b", re.IGNORECASE)
"""Words of trainings that compare the answers of a group."""
GROUPS = (
    "Look at the rewards: if all answers of a group get the same, nothing has a gradient. Check the"
    " reward function by hand, on a right and on a wrong answer, and sample with more variety."
)
LABELS = (
    "Look at the labels of one batch: if all are -100, as when prompts fill the maximum length or a"
    " template for responses isn't found in the text, nothing has a gradient. Otherwise see what is"
    " trained: parameters that don't require a gradient, an adapter loaded without"
    " `is_trainable=True`, or reentrant checkpointing without"
    " `model.enable_input_require_grads()`."
)
PREFERRED = (
    "See that policy and reference differ after the first step: 0.693 is the loss if they give the"
    " same. The reference may follow the policy, the trained adapter may be off or not in the"
    " optimizer, or chosen and rejected answers may be the same."
)
OPTIMIZER = (
    "See that the optimizer trains the model: its parameters are collected after FSDP, ZeRO or an"
    " adapter has replaced the model's (in one `prepare` call, or later), and the learning rate"
    " isn't 0."
)
CHECKS = " Under safe-launch, the checks of a run name the parameters."


def nothing_learned(case: Case) -> Step | None:
    """Names what to look at first, by the number that doesn't move."""
    match = MESSAGE.search(case.message) if not case.kind else None
    if match is None:
        return None
    if match["what"] == NORM or float(match["value"]) == 0:
        return Step((GROUPS if OF_GROUPS.search(case.around) else LABELS) + CHECKS)
    is_preferred = round(float(match["value"]), 3) == LN_2
    return Step((PREFERRED if is_preferred else OPTIMIZER) + CHECKS)
