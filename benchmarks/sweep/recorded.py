"""An optimizer that records the gradients that reach it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed


class Recorded(torch.optim.SGD):
    """Plain gradient descent, whose steps show every error in a gradient's size."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.seen: list[torch.Tensor] = []

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Records the gradients, then steps."""
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None:
                    whole = gradient.to_local() if hasattr(gradient, "to_local") else gradient
                    self.seen.append(whole.detach().double().flatten().clone())
        return super().step(closure)

    def taken(self, elements: int) -> tuple[float, float]:
        """The sum and the norm of the gradient since the last call, over all ranks.

        Args:
            elements: of all trained parameters; a rank with fewer has a part of them.
        """
        seen = torch.cat(self.seen) if self.seen else torch.zeros(0, dtype=torch.float64)
        self.seen = []
        sums = torch.stack([seen.sum(), seen.square().sum()])
        is_part = torch.tensor(float(len(seen) < elements))
        distributed.all_reduce(is_part, op=distributed.ReduceOp.MAX)
        if is_part:
            distributed.all_reduce(sums)
        return float(sums[0]), float(sums[1].sqrt())
