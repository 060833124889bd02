"""Follows scalers, and looks at the dtypes of weights, gradients, passes and frequencies."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks import layers, updated
from ...checks.finding import Check, Finding
from ...core.private_names import SCALE
from ...evidence.observations import observations
from ..fsdp import TORCHS
from . import early_steps
from .calls import after, argument, first_passes, with_gradients
from .copies import Copy, copied
from .models import known_models, parameters_of
from .reporting import is_on, report_here, safely

ACCELERATE, SCALER = "accelerate.accelerator", "torch.amp.grad_scaler"
HOOKED = ("torch.nn.parallel.distributed", ACCELERATE, SCALER, TORCHS)
FREQUENCIES = re.compile(r"(.*_)?inv_freqs?|freqs|(inverse_)?frequencies")
"""Names of buffers that are multiplied by positions."""
LOOKS = 3
"""Forward passes with such a buffer to look at."""

scalers: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that have scaled a loss."""
scaling: weakref.WeakSet[Any] = weakref.WeakSet()
"""Scalers that haven't unscaled the gradients yet."""
_scales: weakref.WeakKeyDictionary[Any, tuple[int, tuple[Copy, ...]]] = weakref.WeakKeyDictionary()
"""By scaler: its updates, and its scale at the last of them that were looked at."""
autocasts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""By unwrapped model: the autocast dtype of its first training pass; no entry without autocast."""
casting: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules whose weights FSDP2 casts to bfloat16 to compute."""
_frequencies: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules of frequencies that are watched."""
unasked: weakref.WeakSet[Any] = weakref.WeakSet()
"""transformers models with the checkpoint's dtype, by default."""
precisions: set[str] = set()
"""Mixed precisions of the Accelerators, e.g. `bf16`."""


def has_scaled() -> bool:
    """Whether gradients are scaled by a scaler of torch, whose steps unscale them."""
    return any(type(scaler).__module__.startswith("torch.") for scaler in scaling)


def install(module: ModuleType) -> None:
    """Wraps scalers, Accelerators, and the making of DistributedDataParallel models."""
    wrap = partial(wrapt.wrap_function_wrapper, module)
    match module.__name__:
        case name if name == SCALER:
            wrap("GradScaler.scale", _scaling)
            for method in ("unscale_", "step"):
                wrap(f"GradScaler.{method}", _unscaling)
            wrap("GradScaler.update", _updating)
        case name if name == ACCELERATE:
            after(module, "Accelerator.__init__", Check.PRECISION, _accelerated)
        case name if name == TORCHS:
            if hasattr(module, "fully_shard"):  # from torch 2.6 on
                after(module, "fully_shard", Check.PRECISION, _sharded)
        case _:
            early_steps.looking(Check.PRECISION, look_at_frequencies)
            after(module, "DistributedDataParallel.__init__", Check.PRECISION, _made)


def _scaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    if instance.is_enabled():
        scaling.add(instance)
        scalers.add(instance)
    return wrapped(*args, **kwargs)


def _unscaling(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    scaling.discard(instance)
    return wrapped(*args, **kwargs)


def _updating(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    result = _unscaling(wrapped, instance, args, kwargs)
    if instance.is_enabled() and is_on(Check.TRAINED):
        safely(Check.TRAINED, _look, instance)
    return result


def _look(scaler: Any) -> None:
    """Compares the scale with an earlier one: each skipped step lowers it by a factor."""
    updates, scales = _scales.get(scaler, (0, ()))
    if updates % updated.MOST_SKIPPED == 0:
        now = None
        with observations.going_on():
            now = copied([SCALE.of(scaler).detach().reshape(-1)])
        scales = (*scales, *filter(None, [now]))[-3:]
        seen = [scale.parts()[0][0] for scale in scales if scale.is_there]
        report_here(updated.skipped(seen, scaler.get_backoff_factor()))
    _scales[scaler] = updates + 1, scales


def _accelerated(instance: Any, *_call: Any) -> None:
    precisions.add(str(instance.mixed_precision))


def _sharded(_instance: Any, args: Any, kwargs: Any, _result: Any) -> None:
    module, policy = argument(args, kwargs, 0, "module"), kwargs.get("mp_policy")
    is_bf16 = str(getattr(policy, "param_dtype", None)) == "torch.bfloat16"
    if is_bf16 and hasattr(module, "named_parameters"):
        casting.add(module)


def _made(instance: Any, *_call: Any) -> None:
    first_passes(instance, Check.PRECISION, _note, when=with_gradients)


def _note(model: Any, *_given: Any) -> None:
    """Notes the autocast dtype of a pass."""
    import torch

    kind = next(model.parameters()).device.type
    ask = getattr(torch, "get_autocast_dtype", None)  # from torch 2.4 on
    if ask is not None and torch.is_autocast_enabled(kind):
        autocasts[model.module] = ask(kind)


def judged(
    optimizer: Any, names: Mapping[int, str], *, by_engine: bool
) -> Iterator[Finding | None]:
    """Reports dtypes that lose updates.

    Args:
        optimizer: about to make its first step.
        names: of its parameters, by id.
        by_engine: DeepSpeed makes its steps.
    """
    import torch

    every = list(parameters_of(optimizer))
    held = {id(param) for param in every}
    types = {
        dtype
        for model, dtype in list(autocasts.items())
        if any(id(param) in held for param in model.parameters())
    }
    kind, has_autocast = type(optimizer).__name__, "bf16" in precisions and not by_engine
    if torch.float16 in types and not scalers:
        yield updated.unscaled(kind)
    if not type(optimizer).__module__.startswith("torch.optim."):
        return
    alike = {
        names[id(param)]: param
        for param in every
        if param.grad is not None and param.grad.dtype is param.dtype
    }
    halves = list(_sizes_in(torch.float16, alike))
    others = sum(param.grad is not None for param in every) - len(halves)
    yield updated.without_master(kind, halves, others)
    is_cast = any(id(param) in held for module in list(casting) for param in module.parameters())
    if (has_autocast or is_cast or torch.bfloat16 in types) and not _is_loaded_in_bf16():
        elements = sum(param.numel() for param in alike.values())
        sizes = _sizes_in(torch.bfloat16, alike)
        yield updated.without_copy(kind, sizes, elements)


def _sizes_in(dtype: Any, parameters: Mapping[str, Any]) -> dict[str, int]:
    """Elements of the parameters in a dtype, by name; single elements are scales."""
    return {
        name: param.numel()
        for name, param in parameters.items()
        if param.dtype is dtype and param.numel() > 1
    }


def _is_loaded_in_bf16() -> bool:
    """Whether transformers was asked to load a model in bfloat16, usually on purpose."""
    import torch

    for model in known_models():
        config = None if model in unasked else getattr(model, "config", None)
        # Before transformers 4.56 the name is `torch_dtype`, which newer versions warn about.
        name = "dtype" if hasattr(config, "dtype") else "torch_dtype"
        if getattr(config, name, None) is torch.bfloat16:
            return True
    return False


def look_at_frequencies(_optimizer: Any, step: int) -> None:
    """Watches the modules of frequencies in half precision, for the length of their inputs."""
    if step != 1:
        return
    for model in known_models():
        for path, module in model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                dtype = str(buffer.dtype).removeprefix("torch.")
                is_coarse = FREQUENCIES.fullmatch(name) and dtype in layers.EXACT
                if is_coarse and module not in _frequencies:
                    _frequencies.add(module)
                    look_at = partial(_look_at_inputs, f"{path}.{name}".lstrip("."), dtype)
                    first_passes(module, Check.PRECISION, look_at, LOOKS)


def _look_at_inputs(name: str, dtype: str, _module: Any, args: Any, kwargs: Any) -> None:
    """Compares the lengths of a module's inputs with what the dtype can count."""
    lengths = [
        size
        for one in (*args, *kwargs.values())
        if hasattr(one, "shape") and hasattr(one, "is_floating_point")
        for size in (one.shape[1:-1] if one.is_floating_point() else one.shape[1:])
    ]
    report_here(layers.coarse(name, dtype, max(lengths, default=0)))
