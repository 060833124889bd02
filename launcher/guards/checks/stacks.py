"""What runs when a function of torch's is called: modules, checkpointing, autograd functions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

CALL = "_call_impl"
"""torch's function that calls a module's forward (recognized only)."""
CHECKPOINT = "torch/utils/checkpoint.py"
"""The file of torch's function that checkpoints a block."""


@dataclass(slots=True)
class Running:
    """What runs.

    Attributes:
        modules: the modules whose forward runs, innermost first.
        args: positional arguments of the outermost.
        kwargs: its others.
        is_within_function: whether gradients may be off because of a checkpoint or an autograd
            function, although the pass is trained.
        is_drawn_anew: whether a checkpoint will draw other random values when it recomputes.
    """

    modules: list[Any] = field(default_factory=list)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    is_within_function: bool = False
    is_drawn_anew: bool = False

    @property
    def outermost(self) -> Any:
        """The outermost module; None outside of modules."""
        return self.modules[-1] if self.modules else None


def running() -> Running:
    """What runs on this thread."""
    found = Running()
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == CALL:
            values = frame.f_locals
            found.modules.append(values.get("self"))
            found.args, found.kwargs = values.get("args", ()), values.get("kwargs", {})
        elif _is_checkpoint(code):
            found.is_within_function = True
            if code.co_name == "checkpoint" and code.co_filename.endswith(CHECKPOINT):
                found.is_drawn_anew |= _draws_anew(frame.f_locals)
        elif code.co_varnames[:1] == ("ctx",):
            found.is_within_function = True
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _draws_anew(values: Mapping[str, Any]) -> bool:
    """Whether a call of torch's `checkpoint` will recompute with other random values."""
    import torch

    is_trained = torch.is_grad_enabled() or any(
        getattr(each, "requires_grad", False) for each in values.get("args", ())
    )
    return is_trained and values.get("preserve") is False


def _is_checkpoint(code: CodeType) -> bool:
    return "checkpoint" in code.co_filename.rpartition("/")[2]
