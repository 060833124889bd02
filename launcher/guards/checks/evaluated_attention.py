"""Shows the calls of torch's attention in an evaluation to the check of dropout.

torch's function is replaced from `Module.eval` to the next step: TorchScript needs the original.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...evidence.observations import observations
from .dropouts import dropouts
from .models import is_compiled
from .reporting import is_on, safely
from .watched import FUNCTIONS, shown

OPTIMIZER = "torch.optim.optimizer"
HOOKED = ("torch.nn.modules.module", OPTIMIZER)
NAME = "scaled_dot_product_attention"
MOST = 2
"""Evaluations to look at."""


class Window:
    """The replaced function during an evaluation.

    Attributes:
        left: how many further evaluations to look at.
        original: torch's function; None while it isn't replaced.
    """

    def __init__(self) -> None:
        self.left = MOST
        self.original: Any = None
        self._wrapper: Any = None

    def open(self, model: Any) -> None:
        """Begins with the evaluation of a model."""
        dropouts.evaluate()
        if self.original is not None or not self.left or not observations.steps_of_all():
            return
        if not any(param.requires_grad for param in model.parameters()) or is_compiled(model):
            return
        import torch

        self.left -= 1
        self.original = getattr(sys.modules[FUNCTIONS], NAME)
        self._wrapper = shown(self.original, (dropouts,), torch.jit.script_if_tracing)
        setattr(sys.modules[FUNCTIONS], NAME, self._wrapper)

    def close(self, *_arguments: Any) -> None:
        """Puts torch's function back, unless something else has replaced it again."""
        if self.original is not None:
            if getattr(sys.modules[FUNCTIONS], NAME) is self._wrapper:
                setattr(sys.modules[FUNCTIONS], NAME, self.original)
            self.original = self._wrapper = None


window = Window()
"""That of this process."""


def install(module: ModuleType) -> None:
    """Opens the window at the beginning of evaluations, and closes it after a step."""
    if module.__name__ == OPTIMIZER:
        module.register_optimizer_step_post_hook(window.close)
        return

    def evaluated(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if is_on(Check.TRAINED):
            safely(Check.TRAINED, window.open, instance)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "Module.eval", evaluated)
