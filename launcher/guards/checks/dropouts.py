"""Finds dropout that acts in evaluation, in a teacher's passes, or anew in a recomputed block."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ...checks import dropped
from ...checks.finding import Check
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_frames
from .copies import Copy, copied, local, sample
from .models import known_models, parameters_of
from .passes_compared import compared
from .reporting import report_here
from .schedules import schedules
from .stacks import Running, running

STEPS = 10
"""First steps in which training mode is looked at."""
CHECKPOINTED = 12
"""Calls to look at for a checkpointed block."""
EARLY = 256
"""Calls without gradients to look at in the first steps."""
LATER = 256
"""Calls without gradients to look at after them, in evaluations."""
TEACHERS = ("teacher", "ref", "reference", "target", "frozen", "old", "ema")
"""Names of a part whose outputs are compared with the trained part's."""


@dataclass(slots=True)
class Other:
    """A model that isn't trained.

    Attributes:
        steps: the steps with a pass of it.
        samples: of a weight in each.
    """

    steps: set[int] = field(default_factory=set)
    samples: list[Copy] = field(default_factory=list)


class Dropouts:
    """Dropout that acts, of this process.

    Attributes:
        check: the check.
        is_open: whether to look at further calls.
    """

    check = Check.TRAINED

    def __init__(self) -> None:
        self.is_open = True
        self._left = {"checkpointed": CHECKPOINTED, "early": EARLY, "later": LATER}
        self._others: weakref.WeakKeyDictionary[Any, Other | None] = weakref.WeakKeyDictionary()

    def evaluate(self) -> None:
        """Opens for an evaluation that begins."""
        self.is_open = self.is_open or self._left["later"] > 0

    def look(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], _made: Any) -> None:
        """Looks at a call of a function that drops elements."""
        import torch

        is_attention = name == "scaled_dot_product_attention"
        place, key = (4, "dropout_p") if is_attention else (1, "p")
        share = args[place] if len(args) > place else kwargs.get(key, 0.0 if is_attention else 0.5)
        by_default = is_attention or not name.startswith(("alpha", "feature"))
        acts = args[2] if len(args) > 2 and not is_attention else kwargs.get("training", by_default)
        steps = observations.steps_of_all() or 0
        if steps >= STEPS and torch.is_grad_enabled():
            self.is_open = False
            return
        if not (acts and share):
            return
        first = args[0] if args else None
        if not torch.is_grad_enabled():
            if self._takes("early" if steps < STEPS else "later"):
                self._look_without_gradients(name, running(), share, first, steps)
            return
        if not compared.is_waiting and not self._takes("checkpointed"):
            return
        now = running()
        if now.is_drawn_anew:
            report_here(dropped.drawn_anew(share))
        if compared.is_waiting:
            compared.trained(now, first)

    def _takes(self, what: str) -> bool:
        """Whether another call is to be looked at, which it counts."""
        self._left[what] -= 1
        return self._left[what] >= 0

    def _look_without_gradients(
        self, name: str, now: Running, share: float, given: Any, steps: int
    ) -> None:
        if now.is_drawn_anew:
            report_here(dropped.drawn_anew(share))
        model = now.outermost
        if model is None or now.is_within_function:
            return
        if not getattr(model, "module", model).training:
            _look_at_evaluation(name, now)
        elif steps < STEPS:
            other = _untrained(now)
            if other is not None:
                self._see_other(other, share, steps)
            elif _is_trained(model):
                compared.untrained(now, given, share)

    def _see_other(self, model: Any, share: float, steps: int) -> None:
        """Notes a pass of a model that isn't trained; reports one that stays as it is."""
        seen = self._others.setdefault(model, Other())
        if seen is None or steps in seen.steps:
            return
        weights = (sample(local(param.detach())) for param in model.parameters())
        weight = next((each for each in weights if each is not None), None)
        copy = None if weight is None else copied([weight])
        if copy is None:
            self._others[model] = None
            return
        if len(seen.steps) >= dropped.STEPS and all(each.is_there for each in seen.samples):
            self._others[model] = None
            values = [each.parts()[0] for each in seen.samples]
            if all(each == values[0] for each in values):  # not an average that follows
                kind = type(model).__name__
                report_here(dropped.of_another(kind, len(seen.steps), share), step=steps + 1)
            return
        seen.steps.add(steps)
        seen.samples.append(copy)


dropouts = Dropouts()
"""Those of this process."""


def _look_at_evaluation(name: str, now: Running) -> None:
    """Reports dropout that acts though the model and what calls it are in evaluation mode."""
    from torch import nn

    layers = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout
    owner, model = now.modules[0], now.outermost
    is_layer = isinstance(owner, (*layers, nn.FeatureAlphaDropout))
    if is_layer:
        if any(layer is owner for layer in model.modules()):
            return  # put into training mode on purpose, as Monte Carlo dropout does
    elif owner.training or _is_asked_for():
        return
    function = type(owner).__name__ if is_layer else name
    report_here(dropped.kept_on(function, type(model).__name__, is_made=is_layer))


def _is_asked_for() -> bool:
    """Whether the user's line says literally that dropout is to act."""
    lines = islice(user_frames(), 1)
    return any("training=True" in linecache.getline(*frame) for frame in lines)


def _held() -> set[int]:
    """Ids of the tensors that optimizers train, which may be frozen for a while."""
    return {
        id(each)
        for one in list(schedules.optimizers)
        for each in parameters_of(one)
        if each.requires_grad or each in one.state
    }


def _is_trained(model: Any) -> bool:
    """Whether an optimizer holds parameters of a model, or an engine its copies of them."""
    held = _held()
    is_wrapped = any(model in (one, getattr(one, "module", None)) for one in data_parallel.others)
    return is_wrapped or any(id(param) in held for param in model.parameters())


def _untrained(now: Running) -> Any:
    """The outermost module that runs and of which nothing is trained, if it is a model."""
    held = _held()
    outer = None
    for module in reversed(now.modules):
        params = list(module.parameters())
        is_frozen = params and not any(param.requires_grad for param in params)
        if is_frozen and module.training and not any(id(param) in held for param in params):
            return module if outer is None or _is_teacher(outer, module) else None
        if outer is None and params and not is_frozen and _is_left(module, params, held):
            return module
        outer = module
    return None


def _is_left(module: Any, params: list[Any], held: set[int]) -> bool:
    """Whether a model that could be trained isn't: no optimizer has it, and nothing a gradient."""
    if not held or data_parallel.others or not module.training:
        return False
    known = {id(param) for model in known_models() for param in model.parameters()}
    return not any(
        id(param) in held or id(param) in known or param.grad is not None for param in params
    )


def _is_teacher(outer: Any, module: Any) -> bool:
    """Whether a part is compared with another, by its name or as both are of one class."""
    return any(
        child is not module and type(child) is type(module) for child in outer.children()
    ) or any(_is_named(name) for name, child in outer.named_children() if child is module)


def _is_named(name: str) -> bool:
    return any(part in TEACHERS for part in name.lower().split("_"))
