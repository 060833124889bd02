"""Checks whether weights tied by a model's configuration still are one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...checks import built
from ...evidence.observations import Observations
from .copies import Copy, copied, sample
from .told import tell


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
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
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
            names = {id(each): name for name, each in model.named_parameters()}
            yield Apart(
                names.get(id(output), "the output layer"),
                names.get(id(embedding), "the embedding"),
                copy,
            )


def judge(observations: Observations, found: list[Apart], where: str) -> list[Apart]:
    """Reports pairs whose values have arrived; returns the others."""
    for each in found:
        if each.copy.is_there:
            one, other = each.copy.parts()
            is_equal = one == other and any(one)
            told = built.parted(each.output, each.embedding, is_equal=is_equal, where=where)
            tell(observations, told)
    return [each for each in found if not each.copy.is_there]
