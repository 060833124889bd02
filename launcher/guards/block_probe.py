"""Detects in the first pass whether a checkpointed block runs twice before a backward.

This isn't visible earlier, and some engines fail on it with reentrant checkpointing. While the
launcher needs the answer, blocks run non-reentrant, with the same values and gradients. A block
that runs again while its first graph is alive runs twice; the first recomputation proves that none
does. Either is reported at once; from then on blocks run as requested, or as the answer demands.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from types import FunctionType
from typing import Any

from ..core.choices import Checkpointing
from ..core.settings import Fact, Setting
from ..evidence.worker_messages import Boundary
from . import settling

PLAIN = (int, str, bytes, type(None))
"""Types of arguments that distinguish two calls of one function, as in `run_layer(3, x)`."""


LOOKED = 256
"""Blocks without inputs that require a gradient to inspect in the first passes."""


class State(Enum):
    """State of the probe."""

    UNASKED = 0
    """The launcher hasn't been asked whether it needs the result."""
    PROBING = 1
    OVER = 2


class BlockProbe:
    """Tracks the blocks run so far until the result is known."""

    def __init__(self) -> None:
        self.state = State.UNASKED
        self._unlooked = LOOKED
        self._runs: dict[Hashable, weakref.ref[Any]] = {}
        self._lock = threading.Lock()

    def look_at_inputs(
        self, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        """Asks the launcher once if no input of a trained block requires a gradient.

        Reentrant checkpointing then records no graph for the block.
        """
        import torch

        if (
            not self._unlooked
            or options.get("use_reentrant") is False
            or not torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or any(isinstance(value, torch.Tensor) and value.requires_grad for value in args)
        ):
            return
        self._unlooked -= 1
        if any(map(_is_trained, (*_parts(function, depth=3), *args))):
            self._unlooked = 0
            self._ask(checkpoint_input_frozen=True)

    def applies(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
        """Whether the block may run non-reentrant with the same gradients.

        Under reentrant checkpointing, a block whose inputs require no gradient trains nothing.
        """
        import torch

        return (
            self.state is not State.OVER
            and options.get("use_reentrant") is not False
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
            and any(isinstance(value, torch.Tensor) and value.requires_grad for value in args)
        )

    def watched(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """The block to run non-reentrant; None to run it unchanged."""
        if self.state is State.UNASKED:
            self.state = State.PROBING if self._ask() else State.OVER
        if self.state is State.OVER:
            return None
        block = identity(function, args)
        earlier = self._runs.get(block)
        if block is not None and earlier is not None and earlier() is not None:
            self._end(runs_twice=True)
            return None
        runs = 0

        @functools.wraps(function, updated=())
        def watched(*arguments: Any, **keywords: Any) -> Any:
            nonlocal runs
            runs += 1
            if runs > 1:  # recomputed: a backward pass has begun
                self._end(runs_twice=False)
            return function(*arguments, **keywords)

        # Lives as long as the graph of this run, which recomputes the block.
        self._runs[block] = weakref.ref(watched)
        return watched

    def _end(self, *, runs_twice: bool) -> None:
        """Reports the result, once."""
        with self._lock:  # autograd recomputes in its own threads
            if self.state is State.OVER:
                return
            self.state = State.OVER
        self._runs.clear()
        self._ask(block_runs_twice=runs_twice)

    def _ask(self, **known: bool) -> bool:
        """Asks the launcher what to do; returns whether it needs more observations."""
        facts = {str(Fact(name)): value for name, value in known.items()}
        mode = {str(Setting.GRADIENT_CHECKPOINTING): Checkpointing.REENTRANT.value}
        changeable = [Setting.GRADIENT_CHECKPOINTING]
        answer = settling.answer_at(Boundary.CHECKPOINT, changeable, {**mode, **facts})
        return answer is not None and answer.probes


def identity(function: Callable[..., Any], args: tuple[Any, ...]) -> Hashable:
    """Identifies a block by its code, its modules and its plain arguments.

    None if no trained module is found in it.
    """
    parts = [*_parts(function, depth=3), *args]
    return tuple(filter(None, map(_part, parts))) if any(map(_is_trained, parts)) else None


def _is_trained(part: Any) -> bool:
    """Whether a part is a trained module; frozen ones may run any number of times."""
    import torch

    is_module = isinstance(part, torch.nn.Module)
    return is_module and any(weight.requires_grad for weight in part.parameters())


def _parts(function: Any, depth: int) -> Iterator[Any]:
    """A callable, its bound object, and its closure."""
    yield function
    if depth == 0:
        return
    if isinstance(function, functools.partial):
        yield from function.args
        yield from function.keywords.values()
        yield from _parts(function.func, depth - 1)
    elif isinstance(function, FunctionType):
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        for cell in function.__closure__ or ():
            try:
                yield from _parts(cell.cell_contents, depth - 1)
            except ValueError:  # not bound yet
                continue
    elif hasattr(function, "__self__"):
        yield function.__self__
        yield getattr(function, "__name__", "")


def _part(value: Any) -> tuple[str, Hashable] | None:
    """Identity of a part; None for tensors and containers."""
    import torch

    if isinstance(value, torch.nn.Module):
        return "module", id(value)
    if isinstance(value, FunctionType):
        return "code", id(value.__code__)
    return ("value", value) if isinstance(value, PLAIN) else None
