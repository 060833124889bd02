"""Inspects the first batches of TRL's trainers that reward groups of completions."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from types import ModuleType
from typing import Any

import wrapt

from ...checks import given
from ...checks.finding import BATCHES, Check
from .copies import Facts
from .reporting import is_on, report_here, safely

TRAINERS = {
    "trl.trainer.grpo_trainer": "GRPOTrainer",
    "trl.trainer.rloo_trainer": "RLOOTrainer",
}
"""By module: the trainer."""
HOOKED = tuple(TRAINERS)
OPTIONS = ("top_p", "top_k", "repetition_penalty")


def install(module: ModuleType) -> None:
    """Wraps the trainer's steps and losses."""
    groups = Groups()
    kind = getattr(module, TRAINERS[module.__name__])

    looks = {
        "training_step": (Check.DATA, groups.see_prompts),
        "compute_loss": (Check.TRAINED, groups.see_advantages),
    }
    for name, (check, see) in looks.items():
        wrapt.wrap_function_wrapper(kind, name, partial(_seen, check, see))


def _seen(check: Check, see: Any, wrapped: Any, trainer: Any, args: Any, kwargs: Any) -> Any:
    """Shows a trainer's batch before a call."""
    safely(check, see, trainer, args[1] if len(args) > 1 else kwargs.get("inputs"))
    return wrapped(*args, **kwargs)


class Groups:
    """The first groups of a process."""

    def __init__(self) -> None:
        self._has_prompts = self._has_advantages = True
        self._shown: list[bool] = []
        self._facts = Facts(given.STEPS)

    def see_prompts(self, trainer: Any, inputs: Any) -> None:
        """Inspects a batch before its completions are made."""
        if not self._has_prompts:
            return
        if not self._shown:
            options = {name: getattr(trainer.args, name, None) for name in OPTIONS}
            report_here(given.sampled_otherwise(options))
        is_rows = isinstance(inputs, list) and all("prompt" in row for row in inputs)
        if not is_rows or _makes_groups(trainer):
            self._has_prompts = False
            return
        prompts = [row["prompt"] for row in inputs]
        self._shown.append(given.are_mixed(prompts, trainer.num_generations))
        if len(self._shown) >= BATCHES:
            self._has_prompts = False
            report_here(given.MIXED_GROUPS.judged(self._shown))

    def see_advantages(self, trainer: Any, inputs: Any) -> None:
        """Inspects a batch of completions."""
        if not (self._has_advantages and trainer.model.training and is_on(Check.TRAINED)):
            return
        advantages, mask = inputs["advantages"], inputs["completion_mask"]
        if not self._facts.are_enough:
            width = getattr(trainer, "max_completion_length", None) or mask.shape[1] + 1
            self._facts.add((advantages == 0).all(), (mask != 0).sum(1).amin() >= width)
        if self._facts.are_there:
            self._has_advantages = False
            zeros, cut = ([*each] for each in zip(*self._facts.truths(), strict=True))
            report_here(given.alike(zeros, is_cut=all(cut)))


def _makes_groups(trainer: Any) -> bool:
    """Whether the script makes completions, and perhaps groups, itself."""
    classes = takewhile(lambda kind: not kind.__module__.startswith("trl."), type(trainer).__mro__)
    names = [name for kind in classes for name in vars(kind)]
    return any("generate" in name or "prepare_inputs" in name for name in names)
