"""Inspects the first batches of TRL's trainers that reward groups of completions."""

from __future__ import annotations

from itertools import takewhile
from types import ModuleType
from typing import Any

import wrapt

from ...checks import rewards
from ...checks.finding import Check
from ..callers import user_place
from .copies import Copy, copied
from .reporting import is_on, report, safely

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

    def stepping(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if groups.has_prompts:
            inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
            safely(Check.DATA, groups.see_prompts, instance, inputs)
        return wrapped(*args, **kwargs)

    def losing(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if groups.has_advantages:
            inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
            safely(Check.TRAINED, groups.see_advantages, instance, inputs)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(kind, "training_step", stepping)
    wrapt.wrap_function_wrapper(kind, "compute_loss", losing)


class Groups:
    """The first groups of a process.

    Attributes:
        has_prompts: whether to look at more prompts.
        has_advantages: whether to look at more advantages.
    """

    def __init__(self) -> None:
        self.has_prompts = self.has_advantages = True
        self._shown: list[bool | None] = []
        self._copies: list[Copy] = []

    def see_prompts(self, trainer: Any, inputs: Any) -> None:
        """Inspects a batch before its completions are made."""
        if not self._shown:
            options = {name: getattr(trainer.args, name, None) for name in OPTIONS}
            report(rewards.sampled_otherwise(options), where=user_place())
        is_rows = isinstance(inputs, list) and all("prompt" in row for row in inputs)
        if not is_rows or _makes_groups(trainer):
            self.has_prompts = False
            return
        prompts = [row["prompt"] for row in inputs]
        self._shown.append(rewards.are_mixed(prompts, trainer.num_generations))
        if len(self._shown) >= rewards.BATCHES:
            self.has_prompts = False
            report(rewards.mixed(self._shown), where=user_place())

    def see_advantages(self, trainer: Any, inputs: Any) -> None:
        """Inspects a batch of completions."""
        if not trainer.model.training or not is_on(Check.TRAINED):
            return
        advantages, mask = inputs["advantages"], inputs["completion_mask"]
        if len(self._copies) < rewards.STEPS:
            width = getattr(trainer, "max_completion_length", None) or 0
            is_cut = (mask != 0).sum(1).amin() >= (width or mask.shape[1] + 1)
            facts = ((advantages == 0).all(), is_cut)
            copy = copied([fact.float().reshape(1) for fact in facts])
            self._copies += [] if copy is None else [copy]
        if len(self._copies) >= rewards.STEPS and all(copy.is_there for copy in self._copies):
            self.has_advantages = False
            shown = [[part[0] > 0 for part in copy.parts()] for copy in self._copies]
            zeros, cut = ([*each] for each in zip(*shown, strict=True))
            report(rewards.alike(zeros, is_cut=all(cut)), where=user_place())


def _makes_groups(trainer: Any) -> bool:
    """Whether the script makes completions, and perhaps groups, itself."""
    classes = takewhile(lambda kind: not kind.__module__.startswith("trl."), type(trainer).__mro__)
    names = [name for kind in classes for name in vars(kind)]
    return any("generate" in name or "prepare_inputs" in name for name in names)
