"""Shows calls of torch.nn.functional to the checks that look at a training's first steps.

The wrappers stay, as compiled code might depend on what a module has. TorchScript and torch.compile
take the original functions, by the marks of `torch.jit.script_if_tracing`. Attention's function is
only replaced from `Module.eval` to the next step: TorchScript needs the original.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import wrapt

from ...checks.finding import Check
from ...evidence.observations import observations
from .calls import Call, Watch
from .dropouts import dropouts
from .loss_functions import loss_inputs, token_losses
from .mixing import ATTENTION, mixing
from .models import is_compiled
from .pairs import contrastive_batches
from .reporting import is_on, safely

JIT, OPTIMIZER = "torch.jit", "torch.optim.optimizer"
HOOKED = (JIT, OPTIMIZER, "torch.nn.modules.module")
FUNCTIONS = "torch.nn.functional"
DROPPING = (
    *("dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("alpha_dropout", "feature_alpha_dropout"),
)
LOSSES = ("kl_div", "ctc_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
WATCHES: dict[str, tuple[Watch, ...]] = {
    **dict.fromkeys(DROPPING, (dropouts,)),
    **dict.fromkeys(LOSSES, (loss_inputs, mixing)),
    "nll_loss": (loss_inputs, token_losses, mixing),
    "cross_entropy": (token_losses, mixing, contrastive_batches),
    "mse_loss": (mixing,),
    ATTENTION: (mixing,),
}
"""What looks at calls, by the function's name."""
EVALUATED = "scaled_dot_product_attention"
"""The function to look at in evaluations alone."""
MOST = 2
"""Evaluations to look at."""


def install(module: ModuleType) -> None:
    """Wraps the functions, and the beginnings and ends of evaluations."""
    if module.__name__ == JIT:
        functional = sys.modules[FUNCTIONS]
        for name, watches in WATCHES.items():
            function = getattr(functional, name)
            setattr(functional, name, shown(function, watches, module.script_if_tracing))
    elif module.__name__ == OPTIMIZER:
        module.register_optimizer_step_post_hook(window.close)
    else:
        wrapt.wrap_function_wrapper(module, "Module.eval", _evaluating)


def shown(function: Any, watches: tuple[Watch, ...], mark: Any) -> Any:
    """Wraps a function to show its calls; `mark` is torch.jit.script_if_tracing."""
    import torch

    name = function.__name__

    @functools.wraps(mark(function))
    def showing(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        for watch in watches:
            if watch.is_open and not torch.compiler.is_compiling() and is_on(watch.check):
                safely(watch.check, watch.look, Call(name, args, kwargs, made))
        return made

    showing.__wrapped__ = function
    return showing


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
        self.original = getattr(sys.modules[FUNCTIONS], EVALUATED)
        self._wrapper = shown(self.original, (dropouts,), torch.jit.script_if_tracing)
        setattr(sys.modules[FUNCTIONS], EVALUATED, self._wrapper)

    def close(self, *_arguments: Any) -> None:
        """Puts torch's function back, unless something else has replaced it again."""
        if self.original is not None:
            if getattr(sys.modules[FUNCTIONS], EVALUATED) is self._wrapper:
                setattr(sys.modules[FUNCTIONS], EVALUATED, self.original)
            self.original = self._wrapper = None


window = Window()
"""That of this process."""


def _evaluating(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    if is_on(Check.TRAINED):
        safely(Check.TRAINED, window.open, model)
    return wrapped(*args, **kwargs)
