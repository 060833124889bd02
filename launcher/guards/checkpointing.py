"""Applies the preset's kind of gradient checkpointing to every checkpointed block.

Every caller ends in `torch.utils.checkpoint.checkpoint`: transformers' layers, peft, models that
pass `use_reentrant` themselves and models with an older format that ignore the Trainer's kwarg.
DeepSpeed's own `deepspeed.checkpointing.checkpoint` is a second, always reentrant implementation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..settings import Checkpointing, Setting
from . import sightings

HOOKED = (
    "torch.utils.checkpoint",
    "deepspeed.runtime.activation_checkpointing.checkpointing",
)
NON_REENTRANT_ONLY = ("context_fn", "determinism_check", "debug", "early_stop")
"""Arguments of `torch.utils.checkpoint.checkpoint` that the reentrant implementation refuses."""


def install(module: Any) -> None:
    """Wraps the module's `checkpoint`; a plain function, so that torch.compile can look inside."""
    original = module.checkpoint
    wrapper = _for_torch(original) if module.__name__ == HOOKED[0] else _for_deepspeed(module)
    module.checkpoint = functools.wraps(original)(wrapper)


def _asked() -> Checkpointing | None:
    value = sightings.overrides().get(Setting.GRADIENT_CHECKPOINTING)
    return None if value is None else Checkpointing(str(value))


def _for_torch(original: Callable[..., Any]) -> Callable[..., Any]:
    def checkpoint(
        function: Callable[..., Any],
        *args: Any,
        use_reentrant: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        import torch

        asked = _asked()
        if asked is Checkpointing.OFF:
            for name in (*NON_REENTRANT_ONLY, "preserve_rng_state"):
                kwargs.pop(name, None)
            return function(*args, **kwargs)
        if asked is Checkpointing.REENTRANT and use_reentrant is False:
            use_reentrant = True
            for name in NON_REENTRANT_ONLY:
                kwargs.pop(name, None)
            preserve = kwargs.pop("preserve_rng_state", True)
            function = functools.partial(function, **kwargs) if kwargs else function
            kwargs = {"preserve_rng_state": preserve}
            args = _with_gradient(args) if torch.is_grad_enabled() else args
        elif asked is Checkpointing.NON_REENTRANT:
            use_reentrant = False
        if torch.is_grad_enabled():
            # Without the argument torch takes the reentrant implementation.
            mode = (
                Checkpointing.NON_REENTRANT if use_reentrant is False else Checkpointing.REENTRANT
            )
            sightings.see(gradient_checkpointing=mode.value)
        return original(function, *args, use_reentrant=use_reentrant, **kwargs)

    return checkpoint


def _with_gradient(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The block's inputs with at least one that requires a gradient.

    The reentrant implementation records no graph at all where no input requires one, and the
    block's own parameters would silently get no gradient. A script written for the other
    implementation needs no such input; the first floating one is made so. Its values are the same.
    """
    import torch

    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    if any(one.requires_grad for one in tensors):
        return args
    first: Any = next((one for one in tensors if one.is_floating_point()), object())
    return tuple(one.detach().requires_grad_() if one is first else one for one in args)


def _for_deepspeed(module: ModuleType) -> Callable[..., Any]:
    original = module.checkpoint

    def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
        match _asked():
            case Checkpointing.OFF:
                return function(*args)
            case Checkpointing.NON_REENTRANT:
                sightings.see(gradient_checkpointing=Checkpointing.NON_REENTRANT.value)
                return module.non_reentrant_checkpoint(function, *args)
            case _:
                sightings.see(gradient_checkpointing=Checkpointing.REENTRANT.value)
                return original(function, *args)

    return checkpoint
