"""Whether what was saved is what was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.count_of import count_of
from .finding import Check, Finding, first_of

Shapes = Mapping[str, Sequence[int]]


def empty(shapes: Shapes, live: Shapes, step: int | None, where: str) -> Finding | None:
    """Weights that were saved without content, as partitioned ones are on every rank.

    Args:
        shapes: what was saved.
        live: the model's own, where they are known: what is empty there as well is meant.
        step: optimizer steps done.
        where: the user's line that saves.
    """
    found = [name for name, shape in shapes.items() if 0 in shape and name not in live]
    found += [
        name
        for name, shape in shapes.items()
        if 0 in shape and name in live and 0 not in live[name]
    ]
    if not found:
        return None
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"{count_of(len(found), 'weight')} of {len(shapes):,} that were saved "
        f"{'is' if len(found) == 1 else 'are'} empty: {first_of(found)}",
        advice="The weights are partitioned (ZeRO stage 3, FSDP): gather them before they are "
        "saved (stage3_gather_16bit_weights_on_model_save, a full state dict)",
        step=step,
        parameter=found[0],
        where=where,
    )


def differing(
    saved: Mapping[str, Sequence[float]],
    live: Mapping[str, Sequence[float]],
    begun: Mapping[str, Sequence[float]],
    step: int | None,
    where: str,
) -> Finding | None:
    """Trained weights that were saved as they were before the training.

    Args:
        saved: sampled elements of what was saved.
        live: the same of the model.
        begun: the same before the first step.
        step: optimizer steps done.
        where: the user's line that saves.
    """
    stale = [
        name
        for name, values in saved.items()
        if name in live and name in begun and list(values) == list(begun[name]) != list(live[name])
    ]
    trained = [name for name in saved if name in begun and begun[name] != live.get(name)]
    if not stale or len(stale) < len(trained):
        return None
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"the saved weights are those of before the training: {stale[0]} has changed "
        "since, and was saved as it was",
        advice="Save the model that is trained: a copy was made before, or another is saved",
        step=step,
        parameter=stale[0],
        where=where,
    )
