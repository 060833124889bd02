"""Checks that a resumed training continues as the saved one would have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.limits import Line
from ..core.quantities import count_of
from .finding import Check, Finding

LEAST = 1e-6
"""Relative difference of settings that are the same."""


@dataclass(frozen=True, slots=True)
class Start:
    """The steps after a process's start or a save.

    Attributes:
        batch: digest of the first batch; empty if unknown.
        rates: learning rates of the first two steps.
        has_state: whether the optimizer had state before the first of them.
    """

    batch: Line = ""
    rates: tuple[float, ...] = ()
    has_state: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """A save or a resume on rank 0.

    Attributes:
        path: the checkpoint.
        where: the user's line.
        first: first steps of the process.
        then: steps after the save; None for a resume, or if there were none.
        rate: the rate at the save; None if unknown, or for a resume.
        has_state: whether the optimizer had state by then.
    """

    path: Line
    where: Line
    first: Start
    then: Start | None = None
    rate: float | None = None
    has_state: bool = False


def judged(saved: Noted, resumed: Noted) -> Iterator[Finding]:
    """Reports state that was saved but starts over, possibly on purpose.

    Args:
        saved: the last save to the path.
        resumed: the first steps of the process that loaded it.
    """
    if saved.where.rpartition(":")[0] != resumed.where.rpartition(":")[0]:
        return  # another script begins with what this one has left
    now, begin, then = resumed.first, saved.first, saved.then
    if saved.has_state and not now.has_state:
        yield replace(starts_over(), step=2)
    if then is not None and now.batch and now.batch == begin.batch != then.batch != "":
        yield _found(
            "the data starts over: the first batch is that of the whole training, not the one that "
            "followed the save",
            "Skip the batches that were trained on, or save and load the loader's state",
            step=2,
            ranks=(0,),
        )
    rate = then.rates[-1] if then is not None and len(then.rates) > 1 else saved.rate
    if rate is None or len(begin.rates) < 2 or len(now.rates) < 2:
        return
    if _near(now.rates[1], begin.rates[1]) and not _near(now.rates[1], rate):
        yield _found(
            f"the learning rate starts over: it is {now.rates[1]:g} in the second step, as at the "
            f"beginning of the training, instead of {rate:g} as after the save",
            "Load the schedule's state too",
            step=2,
            ranks=(0,),
        )


def starts_over() -> Finding:
    """Reports an optimizer without the states that were saved."""
    return _found(
        "the optimizer starts over: nothing of its saved state was restored",
        "Load its state, after it was made and before the first step",
        ranks=(0,),
    )


def rate_begins_anew(scheduler: str) -> Finding:
    """Reports a schedule of a class at its start whose optimizer has loaded states."""
    return _found(
        f"the learning rate starts over: {scheduler} is at its first step, though its "
        "optimizer continues with the states of an earlier training",
        "Load the schedule's state too",
        step=1,
    )


def ordered_anew() -> Finding:
    """Reports batches that are skipped of an order that the interrupted epoch didn't have."""
    return _found(
        "skip_first_batches skips batches of another order: the loader's random state is "
        "that of the first epoch, and not that at the interrupted epoch's beginning",
        "Make the Accelerator with dataloader_config=DataLoaderConfiguration("
        "use_seedable_sampler=True), and call loader.set_epoch(epoch)",
    )


def named_in_vain(checkpoint: str) -> Finding:
    """Reports a checkpoint in TrainingArguments, which `Trainer.train` doesn't read."""
    return _found(
        f"the training starts over: TrainingArguments' resume_from_checkpoint "
        f"{checkpoint} has no effect by itself",
        "Pass it on: trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)",
    )


def loaded_in_vain() -> Finding:
    """Reports `Accelerator.load_state` before anything was prepared to take the states."""
    return _found(
        "accelerator.load_state restores neither model nor optimizer: nothing has been "
        "prepared yet",
        "Call it after accelerator.prepare(model, optimizer, ...)",
    )


def left_in_checkpoint(name: str, count: int) -> Finding | None:
    """Reports an optimizer's states that are in a checkpoint and aren't loaded.

    Args:
        name: their place in the checkpoint.
        count: the checkpoint's values there.
    """
    if not count:
        return None
    return Finding(
        Check.RESUMED,
        certain=True,
        sentence=f"the optimizer's states aren't loaded: torch.distributed.checkpoint fills the "
        f"tensors that it is given, and {name} has none, though the checkpoint has "
        f"{count_of(count, 'value')} there",
        advice="Give it get_optimizer_state_dict(model, optimizer) of "
        "torch.distributed.checkpoint.state_dict, which makes the states, and then call "
        "set_optimizer_state_dict",
    )


def scaler_unused(key: str) -> Finding:
    """Reports a `GradScaler` that begins anew, though the loaded checkpoint has its state."""
    return _found(
        f"the loss scale begins anew: the loaded checkpoint has it as {key!r}, and no GradScaler "
        "has loaded it",
        f"Call scaler.load_state_dict(checkpoint[{key!r}])",
        step=1,
    )


def random_unused(keys: Sequence[str]) -> Finding:
    """Reports random states that a checkpoint has under these keys, and nobody sets."""
    return _found(
        f"random numbers begin anew: the loaded checkpoint has the random states as "
        f"{' and '.join(map(repr, keys))}, and nothing sets them",
        "Set them again after the load: random.setstate, numpy.random.set_state, "
        "torch.set_rng_state, torch.cuda.set_rng_state",
        step=1,
    )


def average_unused(key: str, name: str) -> Finding:
    """Reports an average that begins anew, though the loaded checkpoint has one."""
    return _found(
        f"the average begins anew: the loaded checkpoint has one as {key!r}, but {name} of the "
        "script's average begins with other values",
        f"Load it into the average, after it is made: ema.load_state_dict(checkpoint[{key!r}])",
        step=1,
    )


def average_made_before(name: str) -> Finding:
    """Reports an average that begins at the weights from before a checkpoint was loaded."""
    return _found(
        "an average of the model begins at other weights than the model: it was made "
        f"before load_state_dict, and {name} is still as it was then",
        "Make the average after the weights are loaded, or load its weights as well",
        parameter=name,
    )


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
            if other is None or now.get(name) != other:
                continue
            is_same = abs(number - other) <= LEAST * max(abs(number), abs(other))
            if is_same or (name == "lr" and other < number):
                continue
            what = "learning rate" if name == "lr" else name.replace("_", " ")
            return _found(
                f"the {what} that the script gives {optimizer} is overruled: it is "
                f"{number:g}, and load_state_dict has set it to {other:g} as in the checkpoint",
                "If the new one is meant, set it again after the load: for group in "
                f'optimizer.param_groups: group["{name}"] = ...',
                step=1,
            )
    return None


def _near(rate: float, expected: float) -> bool:
    return math.isclose(rate, expected, rel_tol=1e-3, abs_tol=1e-12)


def _found(
    sentence: str,
    advice: str,
    *,
    step: int | None = None,
    ranks: tuple[int, ...] = (),
    parameter: str = "",
) -> Finding:
    """A finding that may be meant."""
    return Finding(
        Check.RESUMED,
        certain=False,
        sentence=sentence,
        advice=advice,
        step=step,
        ranks=ranks,
        parameter=parameter,
    )
