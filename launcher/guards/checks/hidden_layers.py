"""Finds layers and tensors that get gradients though their model doesn't know them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any


def unregistered(models: Iterable[Any], held: Collection[int]) -> Iterator[str]:
    """Names of what plain lists, dicts and attributes of a model hold, if it has gradients.

    Args:
        models: the models, without wrappers.
        held: ids of the optimizers' parameters.
    """
    for model in models:
        registered = {id(part) for part in model.modules()} | {id(p) for p in model.parameters()}
        for prefix, module in model.named_modules():
            for name, value in list(vars(module).items()):
                for place, part in _parts(value):
                    if id(part) not in registered and _has_unused_gradient(part, held):
                        yield f"{prefix}.{name}{place}".lstrip(".")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """An attribute's value, or the members of a list or dict, with their places."""
    match value:
        case list() | tuple():
            yield from ((f"[{place}]", part) for place, part in enumerate(value))
        case dict():
            yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
        case _:
            yield "", value


def _has_unused_gradient(part: Any, held: Collection[int]) -> bool:
    """Whether a layer or tensor has a gradient that no optimizer uses."""
    import torch

    if isinstance(part, torch.nn.Module):
        tensors = list(part.parameters())
    else:
        tensors = [part] if isinstance(part, torch.Tensor) and part.is_leaf else []
    return any(
        tensor.requires_grad and tensor.grad is not None and id(tensor) not in held
        for tensor in tensors
    )
