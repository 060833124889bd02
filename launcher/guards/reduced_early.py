"""Detects gradients that DDP silently reduces too early.

Reentrant checkpointing runs a separate backward pass per block. DDP reduces a bucket as soon as
each of its parameters has a gradient, and ignores later additions. If all trained parameters are in
one block that runs twice, the gradients of its second run are never reduced across ranks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

from ..core.private_names import ENGINE, GRAPH_TASK
from ..core.settings import Fact
from ..evidence.observations import observations
from . import data_parallel
from .checks.graphs import nodes_of


class Recomputations:
    """Parameters of the blocks recomputed so far in a backward pass.

    Attributes:
        task: autograd's id of the backward pass.
        parameters: ids of the parameters.
    """

    def __init__(self) -> None:
        self.task = -1
        self.parameters: set[int] = set()

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a reentrant block to watch it until the first step ends."""
        if observations.step() or not data_parallel.wrapped:
            return function

        @functools.wraps(function, updated=())
        def block(*args: Any, **kwargs: Any) -> Any:
            import torch

            outputs = function(*args, **kwargs)
            if torch.is_grad_enabled():  # false in the first, forward run
                with observations.going_on():
                    self.note(outputs if isinstance(outputs, tuple) else (outputs,))
            return outputs

        return block

    def note(self, outputs: Iterable[Any]) -> None:
        """Notes a recomputed block; reports a second run at the end of the backward pass.

        If DDP fails on the second run, the pass never ends, and the error explains more.

        Raises:
            MissingNameError: this torch lacks the names.
        """
        import torch

        task = GRAPH_TASK.imported()()
        variables = (getattr(node, "variable", None) for node in nodes_of(*outputs, most=math.inf))
        parameters = {id(leaf) for leaf in variables if isinstance(leaf, torch.nn.Parameter)}
        if task != self.task:
            self.task, self.parameters = task, set()
        if task >= 0 and parameters & self.parameters & data_parallel.reduced():
            early = {Fact.REDUCED_EARLY.value: True}
            ENGINE.imported().queue_callback(lambda: observations.see(**early))
        self.parameters |= parameters
