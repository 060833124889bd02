"""Tells of settings that contradict each other, and of what is done twice, before the first step.

Nothing is changed. Each look is one function on a framework's call; it skips what it can't read.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import os
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ..checks.finding import Check, Finding
from ..core.private_names import DIVISOR
from ..evidence.observations import Observations
from ..workload.contradictions import EXPLAINED, Stated, differing, of_precision, of_trainer
from ..workload.script.scaled_losses import divided_before, ignores_count
from ..workload.script.user_files import tree_of
from .callers import is_called_by, place, user_frames, user_place
from .checks.told import tell as tell_finding
from .deepspeed_plugin import config_of

MAKERS = ("transformers", "accelerate", "lightning", "lightning_fabric", "pytorch_lightning")
"""Packages that go backward for the user's loop, and know what an engine divides."""
ARGUMENTS = (
    *("learning_rate", "weight_decay", "optim", "lr_scheduler_type", "max_grad_norm"),
    *("bf16", "fp16"),
)
"""TrainingArguments that a DeepSpeed configuration may decide otherwise without a word."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is looked at.

    Attributes:
        given: its arguments by name, as far as they are given; `self` is left out.
        owner: the object whose method it is.
    """

    given: Mapping[str, Any]
    owner: Any


Look = Callable[[Call], Iterator[str | Finding]]

_accumulations: weakref.WeakKeyDictionary[Any, Stated] = weakref.WeakKeyDictionary()
"""The accumulation that each Accelerator was made with, and what has stated it."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A call, and how it is looked at.

    Attributes:
        look: says what is seen.
        is_after: it is called once the call has returned.
        is_once: of each object only the first call is looked at, as the others are the same.
    """

    look: Look
    is_after: bool = False
    is_once: bool = False


def install(module: ModuleType, observations: Observations) -> None:
    """Wraps the calls that are looked at in a module."""
    for path, watched in LOOKS[module.__name__].items():
        wrapper = partial(_looked_at, observations, watched, weakref.WeakSet())
        wrapt.wrap_function_wrapper(module, path, wrapper)


def _looked_at(
    observations: Observations,
    watched: Watched,
    seen: weakref.WeakSet[Any],
    wrapped: Any,
    instance: Any,
    args: Any,
    kwargs: Any,
) -> Any:
    if watched.is_once and instance in seen:
        return wrapped(*args, **kwargs)

    def tell() -> None:
        # Whatever else is odd, the training says itself.
        with suppress(Exception), observations.going_on():
            if watched.is_once:
                seen.add(instance)
            given = inspect.signature(wrapped).bind_partial(*args, **kwargs).arguments
            for sentence in watched.look(Call({**given, **given.get("kwargs", {})}, instance)):
                if isinstance(sentence, Finding):
                    tell_finding(observations, sentence)
                else:
                    observations.remark(sentence)

    if not watched.is_after:
        tell()
    result = wrapped(*args, **kwargs)
    if watched.is_after:
        tell()
    return result


def _trainer(call: Call) -> Iterator[str]:
    """A Trainer's arguments against DeepSpeed's configuration in force."""
    arguments, plugin = call.owner.args, call.owner.accelerator.state.deepspeed_plugin
    config = config_of(plugin)
    if config is None:
        return
    named = arguments.deepspeed or os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
    is_file = str(named).endswith(".json")
    label = Path(str(named)).name if is_file else "DeepSpeed's configuration"
    constants = sys.modules["deepspeed.runtime.constants"]
    yield from of_trainer(_stated(arguments), config, label, constants.GRADIENT_CLIPPING_DEFAULT)


def _stated(arguments: Any) -> dict[str, Stated]:
    """The arguments of a Trainer that aren't left to the defaults of their class."""
    defaults = {field.name: field.default for field in dataclasses.fields(arguments)}
    found: dict[str, Stated] = {}
    for name in ARGUMENTS:
        value, default = _plain(getattr(arguments, name)), _plain(defaults[name])
        if default is not dataclasses.MISSING and value != default:
            is_flag = any(word.partition("=")[0] == f"--{name}" for word in sys.argv)
            found[name] = Stated(value, f"--{name}" if is_flag else f"TrainingArguments' {name}")
    return found


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _accelerator(call: Call) -> Iterator[str]:
    """An Accelerator's arguments against the environment and DeepSpeed's configuration."""
    if is_called_by("transformers"):
        return
    at, config = user_place(), config_of(getattr(call.owner.state, "deepspeed_plugin", None)) or {}
    name, variable = "gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
    given = Stated(call.given.get(name, 1), f"Accelerator's {name}", at)
    held = Stated(call.owner.gradient_accumulation_steps, f"${variable}")
    if given.value != 1 and variable in os.environ:
        yield from differing(given, held)
    _accumulations[call.owner] = held if variable in os.environ else given
    asked, variable = call.given.get("mixed_precision"), "ACCELERATE_MIXED_PRECISION"
    own = Stated(str(asked).lower(), "Accelerator's mixed_precision", at) if asked else None
    around = os.environ.get(variable, "").lower()
    yield from of_precision(own, Stated(around, f"${variable}") if around else None, config)


def _prepared(call: Call) -> Iterator[str]:
    """The accumulation that an Accelerator is going to take from DeepSpeed's configuration."""
    stated, own = _accumulations.get(call.owner), call.owner.gradient_accumulation_steps
    config = config_of(call.owner.state.deepspeed_plugin) or {}
    held = config.get("gradient_accumulation_steps")
    if stated is not None and stated.value == own != 1 and isinstance(held, int):
        where = "gradient_accumulation_steps in DeepSpeed's configuration (1 where it has none)"
        yield from differing(stated, Stated(held, where))


def _clipped(call: Call) -> Iterator[str]:
    """A norm that is passed where DeepSpeed clips by its own."""
    wrapper = getattr(call.owner, "deepspeed_engine_wrapped", None)
    if wrapper is None or is_called_by("transformers"):
        return
    asked = Stated(float(call.given["max_norm"]), "clip_grad_norm_'s max_norm", user_place())
    held = float(wrapper.engine.gradient_clipping())
    if not math.isinf(float(call.given["max_norm"])):  # which only asks for the norm
        yield from differing(asked, Stated(held, "DeepSpeed's gradient_clipping"))


def _divided_twice(call: Call) -> Iterator[Finding]:
    """A loss that the loop divides by the accumulation, as what it is given to does too.

    Both the loss's graph and the source say so.
    """
    held = call.owner.gradient_accumulation_steps
    steps = int(held() if callable(held) else held)
    # DeepSpeed's decorator hides the name.
    loss: Any = (*call.given.get("args", ()), call.given.get("loss"))[0]
    is_left = call.given.get("scale_wrt_gas") is False
    is_divided = loss.grad_fn.name().startswith("DivBackward")
    others = [each for each in MAKERS if each != "accelerate" or callable(held)]
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


def _multiplied(call: Call) -> Iterator[Finding]:
    """A `compute_loss` that returns a mean where the Trainer leaves the division to it."""
    trainer = call.owner
    steps, count = trainer.args.gradient_accumulation_steps, call.given.get("num_items_in_batch")
    is_left = getattr(trainer, "loss_is_scaled_for_ga", None) is None
    if steps < 2 or count is None or not (trainer.model_accepts_loss_kwargs and is_left):
        return
    own = type(trainer).compute_loss
    file, line = inspect.getsourcefile(own) or "", inspect.getsourcelines(own)[1]
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(own))).body
    is_users = "-packages/" not in file
    if is_users and isinstance(function, ast.FunctionDef) and ignores_count(function):
        yield Finding(
            Check.DIVIDED,
            certain=True,
            sentence=f"compute_loss ({place(file, line)}) returns a mean and ignores "
            "num_items_in_batch: the Trainer then doesn't divide by the accumulation, and "
            f"gradients are {steps} times too large",
            advice="Divide by it (safe-launch explain compute-loss-without-item-count)",
            step=1,
            where=place(file, line),
        )


def _loader_divided_twice(call: Call) -> Iterator[Finding]:
    """A loader with a DistributedSampler, which accelerate divides among the ranks again."""
    import torch.utils.data.distributed as data

    loader = call.given["data_loader"]
    samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    found = next((each for each in samplers if isinstance(each, data.DistributedSampler)), None)
    ranks = call.owner.num_processes
    is_meshed = getattr(call.owner, "parallelism_config", None) is not None
    is_prepared = type(loader).__module__.startswith("accelerate.")
    if found is None or not 1 < ranks == found.num_replicas or is_meshed or is_prepared:
        return
    yield Finding(
        Check.DATA,
        certain=True,
        sentence="a data loader is divided among the ranks twice: it has a DistributedSampler, and "
        f"accelerate's prepare does so itself. Only 1 / {ranks} of the samples is seen",
        advice=f"Leave the DistributedSampler out ({EXPLAINED})",
        where=user_place(),
    )


LOOKS: dict[str, dict[str, Watched]] = {
    "accelerate.accelerator": {
        "Accelerator.__init__": Watched(_accelerator, is_after=True),
        "Accelerator.prepare": Watched(_prepared),
        "Accelerator.clip_grad_norm_": Watched(_clipped, is_once=True),
        "Accelerator.backward": Watched(_divided_twice, is_once=True),
        "Accelerator.prepare_data_loader": Watched(_loader_divided_twice),
    },
    "deepspeed.runtime.engine": {"DeepSpeedEngine.backward": Watched(_divided_twice, is_once=True)},
    "transformers.trainer": {
        "Trainer.__init__": Watched(_trainer, is_after=True),
        "Trainer.training_step": Watched(_multiplied, is_once=True),
    },
}
"""The calls that are looked at, by module."""
HOOKED = tuple(LOOKS)
