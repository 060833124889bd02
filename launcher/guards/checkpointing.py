"""Applies the preset's checkpointing implementation to every checkpointed block.

All callers reach `torch.utils.checkpoint.checkpoint`: transformers' layers, peft, models that pass
`use_reentrant` themselves, and models in an older format that ignore the Trainer's kwarg.
DeepSpeed's `deepspeed.checkpointing.checkpoint` is a second, always reentrant implementation.

Reentrant checkpointing runs a separate backward pass per block. DDP reduces a bucket as soon as
each of its parameters has a gradient, and ignores later additions. If all trained parameters are in
one block that runs twice, the gradients of its second run are never reduced across ranks.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from ..core.choices import Checkpointing
from ..core.private_names import CHECKPOINT_FUNCTION, ENGINE, GRAPH_TASK, NON_REENTRANT
from ..core.settings import Fact, Setting
from ..evidence.observations import observations
from . import data_parallel
from .block_probe import BlockProbe
from .checks.graphs import nodes_of
from .settling import overrides

HOOKED = (
    "torch.utils.checkpoint",
    "deepspeed.runtime.activation_checkpointing.checkpointing",
)


def install(module: Any) -> None:
    """Wraps the module's `checkpoint` in a plain function, which torch.compile can trace."""
    original = module.checkpoint
    wrapper_of = _for_torch if module.__name__ == HOOKED[0] else _for_deepspeed
    module.checkpoint = functools.wraps(original)(wrapper_of(module))


def _enforced_mode() -> Checkpointing | None:
    value = overrides().get(Setting.GRADIENT_CHECKPOINTING)
    return None if value is None else Checkpointing(str(value))


def _for_torch(module: ModuleType) -> Callable[..., Any]:
    """Wraps torch's `checkpoint`, using its signature to separate its options from the block's.

    Called without a function it returns a decorator (torch 2.14 and later).
    """
    original = module.checkpoint
    parameters = inspect.signature(original).parameters.values()
    keywords = {
        parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
    }
    names = keywords | {"preserve_rng_state"}
    reentrant = names
    with observations.going_on():
        forward = CHECKPOINT_FUNCTION.of(module).forward
        reentrant = {*inspect.signature(forward).parameters}
    recomputations, probe = Recomputations(), BlockProbe()

    def checkpoint(function: Any = None, *args: Any, **kwargs: Any) -> Any:
        options = {name: kwargs.pop(name) for name in names & kwargs.keys()}
        if function is None and not args:
            original(**options, **kwargs)  # raises on an unknown option
            return functools.partial(decorated, options)
        return run(called, function, args, kwargs, options)

    def called(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
        return functools.partial(original, function, **options)

    def decorated(options: Mapping[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
        def configured(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
            return original(**options)(function)

        @functools.wraps(function)
        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            return run(configured, function, args, kwargs, options)

        return checkpointed

    def run(
        checkpointed: Callable[[Callable[..., Any], Mapping[str, Any]], Callable[..., Any]],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Any:
        """Runs a block with the preset's mode; `checkpointed` binds a function and its options."""
        import torch

        if (mode := _enforced_mode()) is None:
            probe.look_at_inputs(function, args, options)
            mode = _enforced_mode()  # as has just been answered
        if mode is None and probe.applies(args, options):
            watched = probe.watched(function, args)
            if watched is not None:
                observations.see(gradient_checkpointing=Checkpointing.REENTRANT.value)
                probing = {**options, "use_reentrant": False, "determinism_check": "none"}
                return checkpointed(watched, probing)(*args, **kwargs)
            mode = _enforced_mode()  # as has just been answered
        if mode is Checkpointing.OFF:
            return function(*args, **kwargs)
        if mode is Checkpointing.REENTRANT and options.get("use_reentrant") is False:
            accepted = {name: value for name, value in options.items() if name in reentrant}
            options = {**accepted, "use_reentrant": True}
            function, args, kwargs = *_positional(function, args, kwargs), {}
            args = _with_gradient(args) if torch.is_grad_enabled() else args
        elif mode is Checkpointing.NON_REENTRANT:
            options = {**options, "use_reentrant": False}
        if torch.is_grad_enabled():
            # Without the argument torch takes the reentrant implementation.
            is_other = options.get("use_reentrant") is False
            mode = Checkpointing.NON_REENTRANT if is_other else Checkpointing.REENTRANT
            observations.see(gradient_checkpointing=mode.value)
            function = function if is_other else recomputations.watching(function)
        return checkpointed(function, options)(*args, **kwargs)

    return checkpoint


def _positional(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Passes keyword arguments by position: reentrant checkpointing handles only those."""
    if not kwargs:
        return function, args
    names, count = tuple(kwargs), len(args)

    def call(*given: Any) -> Any:
        return function(*given[:count], **dict(zip(names, given[count:], strict=True)))

    return call, (*args, *kwargs.values())


def _with_gradient(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Makes at least one of the block's inputs require a gradient.

    If no input requires a gradient, reentrant checkpointing records no graph, and the block's
    parameters silently get no gradient. Scripts written for the non-reentrant implementation may
    have no such input: then the first floating-point input is made to require one.
    """
    import torch

    tensors = [value for value in args if isinstance(value, torch.Tensor)]
    if any(tensor.requires_grad for tensor in tensors):
        return args
    first: Any = next((tensor for tensor in tensors if tensor.is_floating_point()), object())
    return tuple(value.detach().requires_grad_() if value is first else value for value in args)


def _for_deepspeed(module: ModuleType) -> Callable[..., Any]:
    """Wraps DeepSpeed's `checkpoint`; from 0.19.5 on it takes keyword arguments."""
    original, other = module.checkpoint, None
    with observations.going_on():
        other = NON_REENTRANT.of(module)

    def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        match _enforced_mode():
            case Checkpointing.OFF:
                return function(*args, **kwargs)
            case Checkpointing.NON_REENTRANT if other is not None:
                observations.see(gradient_checkpointing=Checkpointing.NON_REENTRANT.value)
                function, args = _positional(function, args, kwargs)
                return other(function, *args)
            case _:
                observations.see(gradient_checkpointing=Checkpointing.REENTRANT.value)
                return original(function, *args, **kwargs)

    return checkpoint


class Recomputations:
    """Parameters of the blocks recomputed so far in a backward pass, for DDP to reduce once.

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
