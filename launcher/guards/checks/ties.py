"""Checks whether weights that a model ties still are one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from types import ModuleType
from typing import Any

import wrapt

from ...checks import built
from ...checks.finding import Check, Finding
from ..callers import user_place
from ..model_facts import base_of
from .copies import Copy, copied, sample
from .gradient_places import Owned, places_in
from .models import parameters_of
from .reporting import is_on, report, safely

HOOKED = ("torch.nn.modules.module",)


_emptied: list[tuple[Owned, Owned, str]] = []
"""Places of one parameter that `to_empty` has made two, and the user's line."""


def install(module: ModuleType) -> None:
    """Wraps `to_empty`, which makes a parameter for each place of a tied one."""

    def emptying(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.get("recurse") is False or not is_on(Check.TRAINED):
            return wrapped(*args, **kwargs)
        tied: list[tuple[Owned, Owned]] = []
        safely(Check.TRAINED, lambda: tied.extend(_tied(instance)))
        result = wrapped(*args, **kwargs)
        where = user_place() if tied else ""
        _emptied.extend((*pair, where) for pair in tied)
        return result

    wrapt.wrap_function_wrapper(module, "Module.to_empty", emptying)


def _tied(model: Any) -> Iterator[tuple[Owned, Owned]]:
    """Pairs of places with the same parameter."""
    places: dict[int, list[Owned]] = {}
    for parameter, place in places_in(model):
        places.setdefault(id(parameter), []).append(place)
    yield from chain.from_iterable(map(pairwise, places.values()))


def emptied(optimizer: Any) -> Iterator[Finding]:
    """Parted weights that an optimizer's first step trains."""
    held = {id(param) for param in parameters_of(optimizer)} if _emptied else set()
    for first, second, where in _emptied:
        parts = first.parameter, second.parameter
        is_trained = all(param is not None and param.requires_grad for param in parts)
        if is_trained and parts[0] is not parts[1] and not held.isdisjoint(map(id, parts)):
            yield built.emptied((first.name, second.name), where)


@dataclass(frozen=True, slots=True)
class Apart:
    """Two formerly tied weights; their values show whether that is intended.

    Attributes:
        output: name of the output layer's weight.
        embedding: name of the embedding's weight.
        copy: samples of both.
    """

    output: str
    embedding: str
    copy: Copy


def apart(models: Iterable[Any]) -> Iterator[Apart]:
    """Untied weights of transformers models; skips intended and untrained ones."""
    for model in models:
        base = base_of(model)
        if not hasattr(base, "get_output_embeddings"):
            continue
        config = base.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        output: Any = getattr(base.get_output_embeddings(), "weight", None)
        embedding: Any = getattr(base.get_input_embeddings(), "weight", None)
        if not getattr(text, "tie_word_embeddings", False) or output is embedding:
            continue
        parts = sample(output), sample(embedding)
        if any(part is None for part in parts) or output.shape != embedding.shape:
            continue
        copy = copied(parts) if output.requires_grad or embedding.requires_grad else None
        if copy is not None:
            names = {id(param): name for name, param in model.named_parameters()}
            yield Apart(
                names.get(id(output), "the output layer"),
                names.get(id(embedding), "the embedding"),
                copy,
            )


def judge(pairs: list[Apart], where: str) -> list[Apart]:
    """Reports pairs whose values have arrived; returns the others."""
    for pair in pairs:
        if pair.copy.is_there:
            output, embedding = pair.copy.parts()
            is_equal = output == embedding and any(output)
            report(built.parted(pair.output, pair.embedding, is_equal=is_equal, where=where))
    return [pair for pair in pairs if not pair.copy.is_there]
