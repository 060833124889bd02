"""Reports work done by both a loop and its framework, or by neither.

Changes nothing. Each check is a function on a framework call, and skips calls it can't read.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ..checks.finding import Check, Finding
from ..core.errors import EXPLAINED
from ..core.private_names import DIVISOR
from ..core.quantities import count_of
from ..workload.script.files import tree_of
from ..workload.script.losses import divided_before
from . import data_parallel, looks
from .callers import MAKERS, is_called_by, place, user_frames, user_values
from .divided_data import tensors_in
from .looks import Call, Looks, Watched

ACCUMULATION = "gradient_accumulation_steps"
_begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Optimizer steps before the first backward pass of each Accelerator."""


def _divided_twice(call: Call) -> Iterator[Finding]:
    """Reports a loss divided by the accumulation both in the loop and in `backward`.

    Both the loss's graph and the source must show it.
    """
    accumulation = call.owner.gradient_accumulation_steps
    steps = int(accumulation() if callable(accumulation) else accumulation)
    # DeepSpeed's decorator hides the name.
    loss: Any = (*call.arguments.get("args", ()), call.arguments.get("loss"))[0]
    is_left = call.arguments.get("scale_wrt_gas") is False
    is_divided = loss.grad_fn.name().startswith("DivBackward")
    others = [maker for maker in MAKERS if maker != "accelerate" or callable(accumulation)]
    if steps < 2 or is_left or not is_divided or is_called_by(*others):
        return
    file, line = next(user_frames())
    tree = tree_of(Path(file))
    at = None if tree is None else divided_before(tree, line)
    if at is not None and float(DIVISOR.of(loss.grad_fn)) == steps:
        yield Finding(
            Check.DIVIDED,
            certain=True,
            sentence=f"the loss is divided by the accumulation of {steps} twice: at "
            f"{place(file, at)}, and by backward() at line {line}, which does so itself. Gradients "
            f"are {steps} times too small",
            advice=f"Leave the first out ({EXPLAINED})",
            step=1,
            where=place(file, at),
        )


def _loader_divided_twice(call: Call) -> Iterator[Finding]:
    """Reports a loader with a DistributedSampler, which accelerate divides among ranks again."""
    import torch.utils.data.distributed as data

    loader = call.arguments["data_loader"]
    samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    sampler = next(
        (sampler for sampler in samplers if isinstance(sampler, data.DistributedSampler)), None
    )
    ranks = call.owner.num_processes
    is_meshed = getattr(call.owner, "parallelism_config", None) is not None
    is_prepared = type(loader).__module__.startswith("accelerate.")
    if sampler is None or not 1 < ranks == sampler.num_replicas or is_meshed or is_prepared:
        return
    yield Finding(
        Check.DATA,
        certain=True,
        sentence="a data loader is divided among the ranks twice: it has a DistributedSampler, and "
        f"accelerate's prepare does so itself. Only 1 / {ranks} of the samples is seen",
        advice=f"Leave the DistributedSampler out ({EXPLAINED})",
    )


def _gathered_twice(call: Call) -> Iterator[Finding]:
    """Reports an evaluation that gathers the samples which fill its last batch."""
    accelerator, state = call.owner, call.owner.gradient_state
    tensor = next(iter(tensors_in(call.arguments["tensor"])), None)
    is_last = state.in_dataloader and state.end_of_dataloader and state.remainder > 0
    is_training = any(model.training for model in data_parallel.wrapped)
    if tensor is None or not tensor.ndim or tensor.requires_grad or is_training or not is_last:
        return
    if is_called_by("accelerate"):
        return  # by gather_for_metrics, which leaves them out
    gathered = len(tensor) * accelerator.num_processes
    if gathered > state.remainder:
        yield Finding(
            Check.DATA,
            certain=False,
            sentence=f"gather() returns {count_of(gathered, 'value')} for the evaluation's last "
            f"{count_of(int(state.remainder), 'sample')}: padding of its last batch counts "
            "twice in a metric",
            advice="Use accelerator.gather_for_metrics(), which leaves them out",
        )


def _divided_for_nothing(call: Call) -> Iterator[Finding]:
    """Reports a loss divided by an accumulation that the loop doesn't perform.

    accelerate's `backward` divides even without `accumulate`.
    """
    accelerator, steps = call.owner, int(call.owner.gradient_accumulation_steps)
    before = _begun.setdefault(accelerator, call.steps)
    is_engine = getattr(accelerator, "deepspeed_engine_wrapped", None) is not None
    if steps < 2 or is_engine or is_called_by("transformers") or accelerator.step:
        return  # which `accumulate` counts
    if call.steps > before:
        yield Finding(
            Check.DIVIDED,
            certain=True,
            sentence=f"backward() divides the loss by the Accelerator's accumulation of {steps}, "
            "but the loop steps after every batch, without accumulate(). Gradients are "
            f"{steps} times too small",
            advice=f"Put the loop's body under accelerator.accumulate(model) ({EXPLAINED})",
            step=call.steps,
        )


def _ignored_accumulation(call: Call) -> Iterator[Finding]:
    """Reports an accumulation among the script's arguments that the Accelerator doesn't have."""
    steps = call.owner.gradient_accumulation_steps
    is_engine = callable(steps)
    if int(steps() if is_engine else steps) > 1 or is_called_by(*MAKERS):
        return
    for name, value in chain.from_iterable(values.items() for values in user_values()):
        stated = inspect.getattr_static(value, ACCUMULATION, None)  # without the user's properties
        if type(stated) is int and stated > 1:
            yield Finding(
                Check.DIVIDED,
                certain=False,
                sentence=f"{name}.{ACCUMULATION} is {stated}, but the "
                f"{'engine' if is_engine else 'Accelerator'}'s is 1: each batch makes a step",
                advice=f"Write {ACCUMULATION} into DeepSpeed's configuration"
                if is_engine
                else f"Make it with Accelerator({ACCUMULATION}={name}.{ACCUMULATION})",
                step=1,
            )
            return


LOOKS: Looks = {
    "accelerate.accelerator": {
        "Accelerator.backward": (
            Watched(_divided_twice, first=1),
            Watched(_divided_for_nothing, first=2),
        ),
        "Accelerator.accumulate": (Watched(_ignored_accumulation, first=1),),
        "Accelerator.prepare_data_loader": (Watched(_loader_divided_twice),),
        "Accelerator.gather": (Watched(_gathered_twice),),
    },
    "deepspeed.runtime.engine": {
        "DeepSpeedEngine.backward": (
            Watched(_divided_twice, first=1),
            Watched(_ignored_accumulation, first=1),
        )
    },
}
HOOKED = tuple(LOOKS)
install = partial(looks.install, LOOKS)
