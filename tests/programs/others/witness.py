"""What a training really does, counted at its model: no framework and no guard is asked."""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook


class Witness:
    """Counts passes through a model and a linear layer of one of its blocks.

    Attributes:
        rows: samples of the first batch.
        length: tokens of its samples; 0 where it has no `input_ids`.
        passes: forward passes of the model in training.
        inside: whether gradients were recorded, for each forward pass of the layer.
        computed: type of the layer's result.
        resident: elements of the layer's weight in this process after a step.
        steps: after how many passes an optimizer stepped, group by group or at once.
        stepped: elements that it stepped in this process, by its class.
    """

    def __init__(self, model: nn.Module, layer: Any) -> None:
        self.rows = self.length = self.passes = self.resident = 0
        self.inside: list[bool] = []
        self.computed = ""
        self.steps: list[int] = []
        self.stepped: dict[str, int] = {}
        self._model, self._layer = model, layer
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        layer.register_forward_hook(self._compute)
        register_optimizer_step_post_hook(self._step)
        if os.environ.get("RANK") == "0" and "WITNESS" in os.environ:
            atexit.register(self._tell, Path(os.environ["WITNESS"]))

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not model.training:
            return
        if not self.passes:
            self.rows = len([*args, *kwargs.values()][0])
            self.length = kwargs["input_ids"].shape[1] if "input_ids" in kwargs else 0
        self.passes += 1

    def _compute(self, layer: nn.Module, _args: tuple[Any, ...], result: torch.Tensor) -> None:
        if layer.training:
            self.inside.append(torch.is_grad_enabled())
            self.computed = str(result.dtype).removeprefix("torch.")

    def _step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self.passes not in self.steps:
            self.steps.append(self.passes)
            self.stepped = {}
        name = type(optimizer).__name__
        groups = optimizer.param_groups
        size = sum(parameter.numel() for group in groups for parameter in group["params"])
        self.stepped[name] = self.stepped.get(name, 0) + size
        self.resident = self._layer.weight.numel()

    def _tell(self, path: Path) -> None:
        sizes = {True: 0, False: 0}
        for parameter in self._model.parameters():
            sizes[parameter.requires_grad] += getattr(parameter, "ds_numel", parameter.numel())
        told = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        path.write_text(json.dumps({**told, "trained": sizes[True], "frozen": sizes[False]}))
