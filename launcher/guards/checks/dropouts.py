"""Finds dropout that acts in evaluation, in a teacher's passes, or anew in a recomputed block."""

from __future__ import annotations

import linecache
import weakref
from dataclasses import dataclass
from typing import Any

from ...checks import layers
from ...evidence.observations import observations
from .. import data_parallel
from ..callers import user_frames, user_place
from .calls import Call, Running, Watch, running
from .copies import Copy, Facts, copied, local, sample
from .first_steps import random_states
from .models import known_models, parameters_of
from .reporting import report, report_here
from .schedules import schedules

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
MOST = 16
"""Maximum passes to compare."""
TOKENS = 256
"""Tokens of a pass to compare."""
LEAST = 8
"""Tokens of a pass that isn't equal to another by chance."""


class Dropouts(Watch):
    """Dropout that acts, of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._left = {"checkpointed": CHECKPOINTED, "early": EARLY, "later": LATER}
        self._others: weakref.WeakKeyDictionary[Any, Facts | None] = weakref.WeakKeyDictionary()
        self._compared = Compared()

    def evaluate(self) -> None:
        """Opens for an evaluation that begins."""
        self.is_open = self.is_open or self._left["later"] > 0

    def look(self, call: Call) -> None:
        """Looks at a call of a function that drops elements."""
        import torch

        is_attention = call.name == "scaled_dot_product_attention"
        if is_attention:
            acts, share = True, call.argument(4, "dropout_p", 0.0)
        else:
            by_default = not call.name.startswith(("alpha", "feature"))
            acts, share = call.argument(2, "training", by_default), call.argument(1, "p", 0.5)
        steps = observations.steps_of_all() or 0
        if steps >= STEPS and torch.is_grad_enabled():
            self.is_open = False
            return
        if not (acts and share):
            return
        is_trained = torch.is_grad_enabled()
        budget = "checkpointed" if is_trained else "early" if steps < STEPS else "later"
        is_compared = is_trained and bool(self._compared.noted)
        if not is_compared and not self._takes(budget):
            return
        now = running()
        if now.is_drawn_anew:
            report_here(layers.drawn_anew(share))
        if not is_trained:
            self._look_without_gradients(call, now, share, steps)
        elif is_compared:
            self._compared.trained(now, call)

    def _takes(self, what: str) -> bool:
        """Whether another call is to be looked at, which it counts."""
        self._left[what] -= 1
        return self._left[what] >= 0

    def _look_without_gradients(self, call: Call, now: Running, share: float, steps: int) -> None:
        model = now.outermost
        if model is None or now.is_within_function:
            return
        if not getattr(model, "module", model).training:
            _look_at_evaluation(call.name, now)
        elif steps < STEPS:
            other = _untrained(now)
            if other is not None:
                self._see_other(other, share, steps)
            elif _is_trained(model):
                self._compared.untrained(now, call, share)

    def _see_other(self, model: Any, share: float, steps: int) -> None:
        """Notes a weight of a model that isn't trained; reports one that stays as it is."""
        seen = self._others.setdefault(model, Facts(layers.STEPS))
        if seen is None or steps in seen:
            return
        weights = (sample(local(param.detach())) for param in model.parameters())
        weight = next((each for each in weights if each is not None), None)
        if seen.are_there:
            self._others[model] = None
            values = seen.parts()
            if all(each == values[0] for each in values):  # not an average that follows
                kind = type(model).__name__
                report_here(layers.of_another(kind, len(values), share), step=steps + 1)
        elif weight is None or not seen.add(weight, call=steps):
            self._others[model] = None


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass with dropout.

    Attributes:
        shape: of its tokens.
        tokens: the first of them.
        random: digest of the random states before.
        model: the class of the model.
        share: the share of elements that are dropped.
        where: the user's line.
    """

    shape: tuple[int, ...]
    tokens: Copy
    random: str
    model: str
    share: float
    where: str


class Compared:
    """Passes of the trained model in the first steps that may have the same tokens.

    Attributes:
        noted: those without gradients, which others are to be compared with.
    """

    def __init__(self) -> None:
        self.noted: list[Pass] = []
        self._pairs: list[tuple[Pass, Pass]] = []
        self._last: tuple[int, ...] = ()

    def untrained(self, now: Running, call: Call, share: float) -> None:
        """Notes a pass without gradients."""
        seen = None if len(self.noted) == MOST else self._seen(now, call, share)
        if seen is not None:
            self.noted.append(seen)

    def trained(self, now: Running, call: Call) -> None:
        """Compares a pass with gradients with those before; reports earlier ones."""
        seen = self._seen(now, call)
        if seen is not None:
            self._pairs += [(one, seen) for one in self.noted if one.shape == seen.shape]
        waiting = []
        for one, other in self._pairs:
            if not (one.tokens.is_there and other.tokens.is_there):
                waiting.append((one, other))
                continue
            tokens = one.tokens.parts()[0]
            # Equal states are put back on purpose, so that the same elements are dropped.
            is_same = tokens == other.tokens.parts()[0] and one.random != other.random
            if is_same and len(set(tokens)) > 2:
                report(layers.unlike_trained(one.model, one.share), where=one.where)
                self.noted, waiting = [], []
                break
        self._pairs = waiting[-MOST:]

    def _seen(self, now: Running, call: Call, share: float = 0.0) -> Pass | None:
        """A pass at its first dropout; None at others, or without tokens."""
        import torch

        ids = next(iter(now.words), None)
        if ids is None or ids.numel() < LEAST:
            return None
        name = (id(ids), ids.data_ptr(), torch.is_grad_enabled())
        if name == self._last:
            return None
        self._last = name
        tokens = copied([ids.reshape(-1)[:TOKENS]])
        if tokens is None:
            return None
        kind = type(getattr(now.outermost, "module", now.outermost)).__name__
        random = random_states(call.args[0] if call.args else None)
        return Pass(tuple(ids.shape), tokens, random, kind, share, user_place())


def _look_at_evaluation(name: str, now: Running) -> None:
    """Reports dropout that acts though the model and what calls it are in evaluation mode."""
    from torch import nn

    kinds = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout
    owner, model = now.modules[0], now.outermost
    is_layer = isinstance(owner, (*kinds, nn.FeatureAlphaDropout))
    if is_layer:
        if any(layer is owner for layer in model.modules()):
            return  # put into training mode on purpose, as Monte Carlo dropout does
    elif owner.training or "training=True" in linecache.getline(*next(user_frames(), ("", 0))):
        return  # as the user's line literally asks
    function = type(owner).__name__ if is_layer else name
    report_here(layers.kept_on(function, type(model).__name__, is_made=is_layer))


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
    names = (name for name, child in outer.named_children() if child is module)
    words = {word for name in names for word in name.lower().split("_")}
    others = (child for child in outer.children() if child is not module)
    return not words.isdisjoint(TEACHERS) or type(module) in map(type, others)


dropouts = Dropouts()
"""Those of this process."""
