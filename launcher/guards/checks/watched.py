"""Shows calls of torch's functions to the checks that look at a training's first steps.

The wrappers stay, as compiled code might depend on what a module has. TorchScript and torch.compile
take the original functions, by the marks of `torch.jit.script_if_tracing`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

from ...checks.finding import Check
from .dropouts import dropouts
from .loss_inputs import loss_inputs
from .mixing import ATTENTION, mixing
from .pairs import contrastive_batches
from .reporting import is_on, safely
from .token_losses import token_losses

HOOKED = ("torch.jit",)
FUNCTIONS = "torch.nn.functional"


class Watch(Protocol):
    """What looks at calls.

    Attributes:
        check: the check.
        is_open: whether to look at further calls.
    """

    check: Check
    is_open: bool

    def look(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Any, /
    ) -> None:
        """Looks at a call of a function, and at its result."""


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


def install(module: ModuleType) -> None:
    """Wraps the functions."""
    functional = sys.modules[FUNCTIONS]
    for name, watches in WATCHES.items():
        function = getattr(functional, name)
        setattr(functional, name, shown(function, watches, module.script_if_tracing))


def shown(function: Any, watches: tuple[Watch, ...], mark: Any) -> Any:
    """Wraps a function to show its calls; `mark` is torch.jit.script_if_tracing."""
    import torch

    name = function.__name__

    @functools.wraps(mark(function))
    def showing(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        for watch in watches:
            if watch.is_open and not torch.compiler.is_compiling() and is_on(watch.check):
                safely(watch.check, watch.look, name, args, kwargs, made)
        return made

    showing.__wrapped__ = function
    return showing
