"""Detects gradients that DDP has reduced too early, which raises no error.

Reentrant checkpointing has a separate backward pass for every block. DDP reduces as soon as each
of its parameters has a gradient, and ignores later additions. If all trained parameters lie in one
block that runs twice, the gradients of its second run are never reduced: they stay this rank's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..core.private_names import ENGINE, GRAPH_TASK
from ..core.settings import Fact
from ..evidence.observations import Observations
from . import data_parallel


class Recomputations:
    """The parameters of the blocks that a backward pass has recomputed so far.

    Attributes:
        task: autograd's number of the backward pass, unique to it.
        parameters: the ids of the parameters.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self.task = -1
        self.parameters: set[int] = set()

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a block for the reentrant implementation; watches it until the first step's end."""
        if self._observations.step() or not data_parallel.wrapped:
            return function

        @functools.wraps(function, updated=())
        def block(*args: Any, **kwargs: Any) -> Any:
            import torch

            outputs = function(*args, **kwargs)
            if torch.is_grad_enabled():  # false in the first, forward run
                with self._observations.going_on():
                    self.note(outputs if isinstance(outputs, tuple) else (outputs,))
            return outputs

        return block

    def note(self, outputs: Iterable[Any]) -> None:
        """Notes a recomputed block; a second run is reported at the end of the backward pass.

        If DDP fails because of it, the pass never ends, and the failure says more.

        Raises:
            MissingNameError: this torch lacks the names.
        """
        task = GRAPH_TASK.found()()
        found = _parameters(outputs)
        if task != self.task:
            self.task, self.parameters = task, set()
        if task >= 0 and found & self.parameters & data_parallel.reduced():
            early = {Fact.REDUCED_EARLY.value: True}
            ENGINE.found().queue_callback(lambda: self._observations.see(**early))
        self.parameters |= found


def _parameters(outputs: Iterable[Any]) -> set[int]:
    """Ids of the parameters in the graphs of a block's outputs."""
    import torch

    found: set[int] = set()
    pending = [output.grad_fn for output in outputs if isinstance(output, torch.Tensor)]
    seen: set[Any] = {None}
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            variable = getattr(node, "variable", None)
            if isinstance(variable, torch.nn.Parameter):
                found.add(id(variable))
            pending += [following for following, _ in node.next_functions]
    return found
