"""Checks that a resumed training uses what its checkpoint has, and what the script asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .finding import Check, Finding

LEAST = 1e-6
"""Relative difference of settings that are the same."""


def average_unused(key: str, name: str) -> Finding:
    """Reports an average that begins anew, though the loaded checkpoint has one.

    Args:
        key: the average's key in the checkpoint.
        name: one of its parameters.
    """
    return _unused(
        f"the average begins anew: the loaded checkpoint has one as {key!r}, but {name} of the "
        "script's average begins with other values",
        f"Load it into the average, after it is made: ema.load_state_dict(checkpoint[{key!r}])",
    )


def scaler_unused(key: str) -> Finding:
    """Reports a `GradScaler` that begins anew, though the loaded checkpoint has its state.

    Args:
        key: its key in the checkpoint.
    """
    return _unused(
        f"the loss scale begins anew: the loaded checkpoint has it as {key!r}, and no GradScaler "
        "has loaded it",
        f"Call scaler.load_state_dict(checkpoint[{key!r}])",
    )


def random_unused(keys: Sequence[str]) -> Finding:
    """Reports random states that a checkpoint has and nobody sets.

    Args:
        keys: their keys in the checkpoint.
    """
    return _unused(
        f"random numbers begin anew: the loaded checkpoint has the random states as "
        f"{' and '.join(map(repr, keys))}, and nothing sets them",
        "Set them again after the load: random.setstate, numpy.random.set_state, "
        "torch.set_rng_state, torch.cuda.set_rng_state",
    )


def _unused(sentence: str, advice: str) -> Finding:
    return Finding(Check.RESUMED, certain=False, sentence=sentence, advice=advice, step=1)


def overruled(
    optimizer: str,
    asked: Sequence[Mapping[str, float]],
    loaded: Sequence[Mapping[str, float]],
    used: Sequence[Mapping[str, float]],
) -> Finding | None:
    """Reports settings that the script gives its optimizer and a loaded state replaces.

    A rate that a resumed training has lowered itself is lower than the one that it began with.

    Args:
        optimizer: its class.
        asked: each group's numbers before the load.
        loaded: those after it.
        used: those at the first step.
    """
    if not len(asked) == len(loaded) == len(used):
        return None
    for before, after, now in zip(asked, loaded, used, strict=True):
        for name, number in before.items():
            other = after.get(name)
            if other is None or now.get(name) != other or _is_near(number, other):
                continue
            if name == "lr" and other < number:
                continue
            what = "learning rate" if name == "lr" else name.replace("_", " ")
            return Finding(
                Check.RESUMED,
                certain=False,
                sentence=f"the {what} that the script gives {optimizer} is overruled: it is "
                f"{number:g}, and load_state_dict has set it to {other:g} as in the checkpoint",
                advice="If the new one is meant, set it again after the load: for group in "
                f'optimizer.param_groups: group["{name}"] = ...',
                step=1,
            )
    return None


def _is_near(number: float, other: float) -> bool:
    return abs(number - other) <= LEAST * max(abs(number), abs(other))
