"""Looks at the rows of embeddings that batches use, and at their gradients."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from ...checks import trained
from ...checks.finding import Check
from . import early_steps
from .calls import first_passes, with_gradients
from .copies import Copy, copied
from .models import known_models, parameters_of
from .reporting import report
from .schedules import schedules

HOOKED = ("torch.nn.modules.sparse",)
FIRST = 2
"""The first step to look at."""
PASSES = 24
"""Passes to look at."""
USED, COLUMNS = 256, 8
"""Words of a batch, and columns of a row to compare."""
MOST = 2
"""Embeddings to look at."""


@dataclass(slots=True)
class Used:
    """The rows of an embedding that are in use.

    Attributes:
        module: the embedding.
        name: of its weight.
        ids: the last batch's words.
        before: words, gradients that are zero, and values before the last step.
        waiting: words, gradients and moves of the steps.
    """

    module: weakref.ref[Any]
    name: str
    ids: Any = None
    before: tuple[Any, Any, Any] | None = None
    waiting: list[Copy] = field(default_factory=list)


_used: weakref.WeakKeyDictionary[Any, list[Used]] = weakref.WeakKeyDictionary()
"""By optimizer."""


def install(_module: ModuleType) -> None:
    """Looks before the first steps."""
    early_steps.looking(Check.TRAINED, look)


def look(optimizer: Any, step: int) -> None:
    """Begins with the embeddings at the first step, and judges them after a few."""
    if step == 1:
        _used[optimizer] = _begun(optimizer)
        return
    for used in [*_used.get(optimizer, ())]:
        module = used.module()
        if module is None:
            _used[optimizer].remove(used)
            continue
        if used.before is not None:
            _compare(used, module.weight)
        if step < FIRST + trained.ROWS_STEPS:
            _keep(used, module.weight)
        else:
            _used[optimizer].remove(used)
            judge = partial(_judge, used, schedules.optimizers[optimizer].where, step)
            early_steps.later(Check.TRAINED, used.waiting, judge)


def _begun(optimizer: Any) -> list[Used]:
    """The trained embeddings of the models, whose batches are watched."""
    from torch.nn import Embedding

    held = {id(param) for param in parameters_of(optimizer) if param.requires_grad}
    groups = optimizer.param_groups
    if not any(group.get("weight_decay") or group.get("momentum") for group in groups):
        return []
    found = [
        (f"{path}.weight", module)
        for model in known_models()
        for path, module in model.named_modules()
        if isinstance(module, Embedding) and id(module.weight) in held and not module.sparse
        if not hasattr(module.weight, "to_local")
    ]
    every = [Used(weakref.ref(module), name) for name, module in found[:MOST]]
    for used, (_, module) in zip(every, found, strict=False):
        note = partial(_note, used)
        first_passes(module, Check.TRAINED, note, PASSES, when=with_gradients)
    return every


def _note(used: Used, _module: Any, args: Any, _kwargs: Any) -> None:
    """Keeps the words of a batch in training."""
    if args and not args[0].is_floating_point():
        used.ids = args[0].detach().reshape(-1)[:USED].clone()


def _keep(used: Used, weight: Any) -> None:
    """Keeps the gradients and values of the rows in use."""
    ids, gradient = used.ids, weight.grad
    used.ids = None
    if ids is None or gradient is None or gradient.is_sparse or ids.device != weight.device:
        return
    zero = (gradient[ids] == 0).all(1)
    used.before = ids, zero, weight.detach()[ids, :COLUMNS]


def _compare(used: Used, weight: Any) -> None:
    """Begins to copy which rows the step has moved."""
    assert used.before is not None, "asked only then"
    (ids, zero, values), used.before = used.before, None
    is_moved = (weight.detach()[ids, :COLUMNS] != values).any(1)
    copy = copied([ids.double(), zero.double(), is_moved.double()])
    if copy is not None:
        used.waiting.append(copy)


def _judge(used: Used, where: str, step: int) -> None:
    finding = trained.zeroed_rows(used.name, [*map(_read, used.waiting)])
    report(finding, where=where, step=step)


def _read(copy: Copy) -> dict[int, tuple[bool, bool]]:
    ids, zero, is_moved = copy.parts()
    about = zip(ids, zero, is_moved, strict=True)
    return {int(row): (bool(none), bool(moves)) for row, none, moves in about}
