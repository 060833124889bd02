"""Checks that loaded weights reach the model and stay in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import dist, prod, sqrt

from ..core.quantities import count_of
from .finding import Check, Finding, first_of
from .saved import Shapes

LEAST = 0.5
"""Minimum part of a model's elements that a load leaves out, to be reported."""
ALIKE = 0.5
"""Correlation of values with those that they are made of, as by noise, at least."""
FEW = 32
"""Minimum of sampled elements to correlate."""
BACK = 4
"""Times that weights are nearer to those before a load than to the loaded ones, at least."""


def loads_nothing(
    loaded: Collection[str], unexpected: Collection[str], missing: Collection[str]
) -> Finding | None:
    """Reports loaded weights none of whose names the model has.

    Args:
        loaded: the loaded names.
        unexpected: loaded names that the model lacks.
        missing: the model's names that weren't loaded.
    """
    if not missing or not 0 < len(loaded) == len(unexpected):
        return None
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"load_state_dict has loaded nothing: "
        f"{first_of(unexpected, 'is', 'are')} not in the model, and strict=False ignores that",
        advice=f"Make the names the model's, e.g. {next(iter(missing))}: a wrapper puts a prefix "
        "before them (module., model., _orig_mod.)",
        parameter=next(iter(missing)),
    )


def loads_itself(count: int) -> Finding:
    """Reports a state dict of this many tensors, all of them the model's own."""
    held = f"all of its {count_of(count, 'tensor')} are the model's own" if count else "it is empty"
    return Finding(
        Check.SAVED,
        certain=False,
        sentence=f"load_state_dict has loaded nothing: {held}",
        advice="No name of the checkpoint may have fitted: compare them with the model's, as a "
        "wrapper puts a prefix before them (module., model., _orig_mod.)",
    )


def fits_nothing(loaded: Collection[str], missing: Collection[str]) -> Finding:
    """Reports a checkpoint without any of its model's names.

    Args:
        loaded: its names that the model lacks.
        missing: the model's names.
    """
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"from_pretrained has loaded nothing: the checkpoint has {first_of(loaded)} and "
        "none of the model's names, so that all weights are random",
        advice="Save the model without its wrapper, or make the names the model's, e.g. "
        f"{next(iter(missing))} (without module., model., _orig_mod.)",
        parameter=next(iter(missing)),
    )


def renamed(
    missing: Shapes, unexpected: Shapes, elements: int, *, is_all: bool = False
) -> Finding | None:
    """Reports pretrained weights most of which have other names than the model's.

    Args:
        missing: shapes of the model's tensors that weren't loaded.
        unexpected: shapes of the loaded ones that the model lacks.
        elements: of the whole model.
        is_all: whether nothing at all was loaded, which is reported otherwise.
    """
    there = Counter(_kind(name, shape) for name, shape in unexpected.items())
    fitting = []
    for name, shape in missing.items():
        if there[_kind(name, shape)]:
            there[_kind(name, shape)] -= 1
            fitting.append(name)
    lost = sum(prod(missing[name]) for name in fitting)
    if is_all or len(fitting) < 2 or lost <= LEAST * elements:
        return None
    return Finding(
        Check.SAVED,
        certain=False,
        sentence=f"load_state_dict has left {lost / elements:.0%} of the model as it was: "
        f"{first_of(fitting, 'is', 'are')} missing, and as many of the "
        f"same shapes have other names, such as {_alike(fitting[0], missing, unexpected)}, which "
        "strict=False ignores",
        advice="Rename the loaded weights as the model's",
        parameter=fitting[0],
    )


def _kind(name: str, shape: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    return name.rpartition(".")[2], tuple(shape)


def _alike(name: str, missing: Shapes, unexpected: Shapes) -> str:
    kind = _kind(name, missing[name])
    return next(other for other, shape in unexpected.items() if _kind(other, shape) == kind)


def overwritten(
    loaded: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]]
) -> Finding | None:
    """Reports loaded weights that something has drawn anew before the first step.

    Noise, a cast or a merged adapter leave them correlated with what was loaded.

    Args:
        loaded: samples of the matrices right after the load.
        now: those before the first step; a name is missing if its tensor was replaced.
    """
    drawn = [
        name
        for name, values in loaded.items()
        if len(values) == len(now.get(name, ())) >= FEW
        and list(values) != list(now[name])
        and abs(_correlation(values, now[name])) < ALIKE
    ]
    if 2 * len(drawn) <= len(loaded):
        return None
    return Finding(
        Check.SAVED,
        certain=False,
        sentence="loaded weights are overwritten before the first step: "
        f"{count_of(len(drawn), 'sampled weight')} of {len(loaded)}, first {drawn[0]}, "
        f"{'has' if len(drawn) == 1 else 'have'} nothing of what load_state_dict has put there",
        advice="Initialize the model before its weights are loaded, not after",
        step=1,
        parameter=drawn[0],
    )


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    means = sum(one) / len(one), sum(other) / len(other)
    pairs = [(a - means[0], b - means[1]) for a, b in zip(one, other, strict=True)]
    scale = sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))
    return sum(a * b for a, b in pairs) / scale if scale else 0.0


def taken_back(
    before: Mapping[str, Sequence[float]],
    loaded: Mapping[str, Sequence[float]],
    now: Mapping[str, Sequence[float]],
) -> Finding | None:
    """Reports weights that are after the first step almost as they were before their load.

    Args:
        before: samples before the load, by name.
        loaded: those after it.
        now: those after the step.
    """
    names = [name for name in loaded if name in now and before.get(name, ()) != loaded[name]]
    back = [
        name
        for name in names
        if name in before and BACK * dist(now[name], before[name]) < dist(now[name], loaded[name])
    ]
    if not names or len(back) < len(names):
        return None
    return Finding(
        Check.SAVED,
        certain=True,
        sentence=f"the first step has taken back the loaded weights: {first_of(back, 'is', 'are')} "
        "as before the load, as the optimizer keeps a copy of the weights",
        advice="Load them before deepspeed.initialize or prepare makes the copy, or call "
        "engine.optimizer.refresh_fp32_params() after the load",
        step=1,
    )
