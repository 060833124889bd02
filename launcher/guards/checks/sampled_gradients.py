"""Chooses the parameters whose gradients are sampled, and their way to the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...checks.finding import Check
from ...checks.seen_gradients import PARAMETERS, Way
from ...core.settings import Fact
from ...evidence.observations import observations
from .. import data_parallel
from .copies import copied, sample, spread
from .gradient_places import Line, is_known, is_row_sharded, owned
from .gradients import Gradients, Sampled
from .models import is_compiled, known_models, parameters_of
from .replicas import replicated_by_engine, unjudged
from .reporting import is_on, skip

LEAST = 8
"""Minimum elements per row."""


def begin_with(gradients: Gradients, optimizer: Any, names: Mapping[int, str]) -> None:
    """Chooses from an optimizer's parameters under DDP, FSDP2, or custom averaging."""
    held = [param for param in parameters_of(optimizer) if param.requires_grad]
    if not _is_judged() or not held:
        return
    models = known_models()
    if any(map(is_compiled, models)):
        skip(Check.GRADIENTS, "the model is compiled")
        return
    if any(hasattr(param, "to_local") for param in held):
        _begin_sharded(gradients, held, models)
        return
    if observations.observed.get("fsdp_version") == 1:
        skip(Check.GRADIENTS, "FSDP 1 holds parameters in one flat tensor")
        return
    alike = data_parallel.replicated()
    wrapped = [param for param in held if id(param) in alike]
    usable = _usable(wrapped or held, _embeddings(models))
    if wrapped:
        gradients.begin(Way.DDP, _some(usable, names))
    elif _has_group():
        chosen = _some([param for param in usable if sample(param) is not None], names)
        weights = copied([sample(sampled.parameter) for sampled in chosen])
        gradients.begin(Way.SCRIPT, chosen if weights else (), weights=weights)


def _some(parameters: Sequence[Any], names: Mapping[int, str]) -> list[Sampled]:
    chosen = spread(parameters, PARAMETERS)
    return [Sampled(names[id(param)], param, Line(tuple(param.shape))) for param in chosen]


def _begin_sharded(gradients: Gradients, held: Sequence[Any], models: Sequence[Any]) -> None:
    """Chooses from FSDP2's parameters; the passes use unsharded tensors instead."""
    import torch

    usable = [
        Sampled(place.name, param, Line(tuple(param.shape)), owner, place.attribute)
        for param in _usable(held, _embeddings(models))
        if (place := owned(param)) is not None and (owner := place.owner()) is not None
        if is_row_sharded(param, data_parallel.world())
    ]
    if not usable:
        skip(Check.GRADIENTS, "parameters aren't divided by rows")
        return
    reduced = observations.observed.get(Fact.REDUCE_PRECISION)
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(str(reduced), torch.float32)
    gradients.begin(Way.FSDP, spread(usable, PARAMETERS), types)


def begin_with_engine(gradients: Gradients, engine: Any) -> None:
    """Chooses from the parameters that a DeepSpeed engine replicates."""
    if not _is_judged():
        return
    if is_compiled(engine.module):
        skip(Check.GRADIENTS, "the model is compiled")
        return
    alike = replicated_by_engine(engine)
    names = {id(param): name for name, param in alike}
    usable = _usable([param for _, param in alike], _embeddings([engine.module]))
    if not any(is_known(engine.basic_optimizer, param) for param in usable):
        skip(Check.GRADIENTS, "the engine doesn't show its optimizer's parameters")
        return
    sent = getattr(engine, "communication_data_type", None)
    gradients.begin(Way.DEEPSPEED, _some(usable, names), *((sent,) if sent else ()))


def _is_judged() -> bool:
    is_divided = Fact.MODEL_PARALLEL in observations.observed
    return data_parallel.world() > 1 and is_on(Check.GRADIENTS) and not unjudged and not is_divided


def _usable(parameters: Sequence[Any], embeddings: set[int]) -> list[Any]:
    """Parameters with informative rows, on one device; few rows of an embedding are used."""
    usable = [
        param
        for param in parameters
        if param.is_leaf
        and param.is_floating_point()
        and param.ndim
        and param.shape[-1] >= LEAST
        and param.numel()
        and id(param) not in embeddings
    ]
    rows = [param for param in usable if param.ndim > 1] or usable
    return [param for param in rows if param.device == rows[0].device]


def _embeddings(models: Sequence[Any]) -> set[int]:
    import torch

    kinds = torch.nn.Embedding, torch.nn.EmbeddingBag
    return {
        id(param)
        for model in models
        for module in model.modules()
        if isinstance(module, kinds)
        for param in module.parameters(recurse=False)
    }


def _has_group() -> bool:
    import torch.distributed as dist

    return (
        dist.is_available()
        and dist.is_initialized()
        and int(dist.get_world_size()) == data_parallel.world()
    )
