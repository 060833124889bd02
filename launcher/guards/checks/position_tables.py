"""Looks at buffers that no checkpoint has: unwritten, or cast with the weights."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ...checks import positions
from ...checks.finding import Check
from ...core.private_names import TRANSIENT, VERSION
from ...evidence.observations import observations
from . import early_steps
from .calls import first_passes
from .copies import Copy, copied
from .models import known_models
from .reporting import is_on, report, report_here, safely
from .schedules import schedules

HOOKED = ("torch.nn.modules.module",)
FREQUENCIES = re.compile(r"(.*_)?inv_freqs?|freqs|(inverse_)?frequencies")
"""Names of buffers that are multiplied by positions."""
SAMPLED, MOST = 16, 8
"""Elements and buffers to look at."""
LOOKS = 3
"""Forward passes to look at."""

_made: list[tuple[weakref.ref[Any], str, int, int, Copy]] = []
"""Buffers that to_empty has made: module, name, address, writes and values."""
_seen: weakref.WeakSet[Any] = weakref.WeakSet()


def install(module: ModuleType) -> None:
    """Wraps `to_empty`."""
    wrapt.wrap_function_wrapper(module, "Module.to_empty", _emptying)
    early_steps.looking(Check.TRAINED, look)
    early_steps.looking(Check.PRECISION, look_at_dtypes)


def _emptying(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    found: list[tuple[Any, str]] = []
    if is_on(Check.TRAINED):
        with observations.going_on():
            found.extend(_transient(model))
    result = wrapped(*args, **kwargs)
    if found:
        safely(Check.TRAINED, _note, found)
    return result


def _transient(model: Any) -> Iterator[tuple[Any, str]]:
    """Modules and names of buffers on the meta device that aren't in state dicts."""
    for module in model.modules():
        for name in TRANSIENT.of(module):
            buffer = getattr(module, name, None)
            if buffer is not None and buffer.is_meta:
                yield module, name


def _note(found: list[tuple[Any, str]]) -> None:
    for module, name in found[:MOST]:
        buffer = getattr(module, name)
        if buffer.numel() and not buffer.is_meta and not hasattr(buffer, "to_local"):
            copy = _values(buffer)
            if copy is not None:
                about = buffer.data_ptr(), VERSION.of(buffer), copy
                _made.append((weakref.ref(module), name, *about))


def _values(buffer: Any) -> Copy | None:
    """Begins to copy a few elements."""
    return copied([buffer.detach().reshape(-1)[:SAMPLED]])


def look(optimizer: Any, step: int) -> None:
    """Looks before the first step for buffers that nothing has written."""
    if step != 1 or not _made:
        return
    names = {id(module): name for model in known_models() for name, module in model.named_modules()}
    held: list[tuple[str, Copy, Copy]] = []
    for known, name, place, writes, before in _made:
        module = known()
        buffer = getattr(module, name, None)
        if buffer is None or id(module) not in names or buffer.is_meta:
            continue
        is_written = (buffer.data_ptr(), VERSION.of(buffer)) != (place, writes)
        now = None if is_written else _values(buffer)
        if now is not None:
            held.append((f"{names[id(module)]}.{name}".lstrip("."), before, now))
    _made.clear()
    judge = partial(_compare, held, schedules.optimizers[optimizer].where)
    early_steps.later(Check.TRAINED, [now for *_, now in held], judge)


def _compare(held: list[tuple[str, Copy, Copy]], where: str) -> None:
    """Reports buffers that are as they were made."""
    same = [
        name
        for name, before, now in held
        if before.is_there and repr(before.parts()) == repr(now.parts())  # NaN is the same
    ]
    report(positions.uninitialized(same), where=where)


def look_at_dtypes(_optimizer: Any, step: int) -> None:
    """Watches the modules of frequencies in half precision, for the length of their inputs."""
    if step != 1:
        return
    for model in known_models():
        for path, module in model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                dtype = str(buffer.dtype).removeprefix("torch.")
                if FREQUENCIES.fullmatch(name) and dtype in positions.EXACT and module not in _seen:
                    _seen.add(module)
                    look_at = partial(_look_at_inputs, f"{path}.{name}".lstrip("."), dtype)
                    first_passes(module, Check.PRECISION, look_at, LOOKS)


def _look_at_inputs(name: str, dtype: str, _module: Any, args: Any, kwargs: Any) -> None:
    """Compares the lengths of a module's inputs with what the dtype can count."""
    lengths = [
        size
        for one in (*args, *kwargs.values())
        if hasattr(one, "shape") and hasattr(one, "is_floating_point")
        for size in (one.shape[1:-1] if one.is_floating_point() else one.shape[1:])
    ]
    report_here(positions.coarse(name, dtype, max(lengths, default=0)))
