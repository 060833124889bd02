"""Detects worker processes that draw the same values in each epoch.

A worker notes the states of its generators before and after its first samples, in memory that it
shares with this process from its fork on. Equal states in two epochs, with other samples, mean that
the draws depend neither on the epoch nor on the sample. What the script gets stays the same.
"""

from __future__ import annotations

import functools
import json
import mmap
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from types import ModuleType
from typing import Any

from ...checks import sampling
from ...core.private_names import FETCHER
from ...evidence.observations import observations
from ..callers import user_place
from .evaluations import Phase, Wait
from .reporting import report

HOOKED = (FETCHER.module,)
PLACES = 8
"""Maximum generators of a data set to note."""
RECORD = 4096
"""Maximum bytes that a worker notes: its samples, and generators' states before and after them."""
WORKERS = 16
"""Maximum workers of a loader to look at."""
DEPTH = 3
"""Levels of attributes in which a data set's generators are sought."""
PARTS = ("transform", "dataset", "aug", "data")
"""Beginnings of names of attributes that may hold generators themselves."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch of a loader with workers.

    Attributes:
        board: what the workers have noted.
        steps: optimizer steps before it.
        where: the user's line.
    """

    board: mmap.mmap
    steps: int
    where: str


class WorkerDraws:
    """The draws of the workers of training loaders.

    Attributes:
        board: the memory for the workers of the loader that begins; None at other times.
    """

    def __init__(self) -> None:
        self.board: mmap.mmap | None = None
        self._first: weakref.WeakKeyDictionary[Any, Epoch] = weakref.WeakKeyDictionary()
        self._pair: tuple[Epoch, Epoch] | None = None
        self._is_over = False

    def before(self, loader: Any, now: Phase) -> None:
        """Prepares a loader's first two epochs for what its workers note."""
        import torch.multiprocessing as processes
        from torch.utils.data import IterableDataset

        context: Any = loader.multiprocessing_context or processes
        self._pair = None
        if self._is_over or now is not Phase.TRAINING or not loader.num_workers:
            return
        if loader.persistent_workers or isinstance(loader.dataset, IterableDataset):
            return
        if context.get_start_method() != "fork":  # others don't inherit the memory
            return
        steps = observations.steps_of_all() or 0
        epoch = Epoch(mmap.mmap(-1, RECORD * WORKERS), steps, user_place())
        first = self._first.setdefault(loader, epoch)
        self.board = epoch.board
        if first is not epoch and steps > first.steps + 1:
            self._pair = first, epoch

    def begun(self, wait: Wait, loader: Any) -> None:
        """Waits until each worker has returned its first batch."""
        if self._pair is not None:
            wait(loader.num_workers, functools.partial(self.drawn, self._pair))

    def drawn(self, pair: tuple[Epoch, Epoch]) -> None:
        """Compares both epochs, unless another loader has begun since."""
        if pair is not self._pair:
            return
        first, second = pair
        self._is_over, self._pair = True, None
        name = _repeated(first.board, second.board)
        if name:
            report(sampling.DRAWN_BY_WORKERS.found(second.steps, name=name), where=second.where)


worker_draws = WorkerDraws()


def install(module: ModuleType) -> None:
    """Wraps what makes a worker's fetcher, after worker_init_fn has run."""
    with observations.going_on():
        owner = FETCHER.of(module)
        owner.create_fetcher = staticmethod(_watching(owner.create_fetcher))


def _watching(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = function(*args, **kwargs)
        if worker_draws.board is not None:
            with suppress(Exception):
                _watch(fetcher, worker_draws.board)
        return fetcher

    return create_fetcher


def _watch(fetcher: Any, board: mmap.mmap) -> None:
    """Notes in a worker what its first samples make of the states."""
    from torch.utils.data import get_worker_info

    worker: Any = get_worker_info()  # None in this process
    if worker is None or worker.id >= WORKERS:
        return
    before = _states(fetcher.dataset)
    fetch = fetcher.fetch

    def fetch_first(places: Any) -> Any:
        del fetcher.fetch
        batch = fetch(places)
        with suppress(Exception):
            after = _states(fetcher.dataset)
            states = {name: [before[name], after[name]] for name in before if name in after}
            content = json.dumps((_digest(places), states)).encode().ljust(RECORD)
            board[RECORD * worker.id : RECORD * (worker.id + 1)] = content
        return batch

    fetcher.fetch = fetch_first


def _repeated(first: mmap.mmap, second: mmap.mmap) -> str:
    """The name of a generator that a worker's samples have moved alike in both epochs."""
    for begin in range(0, RECORD * WORKERS, RECORD):
        one, other = (board[begin : begin + RECORD].strip(b"\0 ") for board in (first, second))
        if not one or not other:
            continue
        (samples, states), (others, states_of_other) = json.loads(one), json.loads(other)
        for name, (before, after) in states.items() if samples != others else ():
            if before != after and states_of_other.get(name) == [before, after]:
                return str(name)
    return ""


def _states(data: Any) -> dict[str, str]:
    """Digests of the states of a process's generators, and of those that its data set holds."""
    import torch

    states: dict[str, Any] = {
        "Python's random": random.getstate(),
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
    }
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        name, state, *others = numpy.random.get_state()
        states["numpy.random"] = name, state.tobytes(), others
    states |= dict(islice(_held(data, "the data set's"), PLACES))
    return {name: _digest(state) for name, state in states.items()}


def _held(data: Any, prefix: str, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """The names and states of generators in a data set's attributes."""
    for name, value in sorted(getattr(data, "__dict__", {}).items()):
        state = _state_of(value)
        if state is not None:
            yield f"{prefix} {name}", state
        elif depth > 1 and name.startswith(PARTS):
            for part in value[:PLACES] if isinstance(value, list | tuple) else (value,):
                yield from _held(part, f"{prefix} {name}'s", depth - 1)


def _state_of(value: Any) -> Any:
    """A generator's state; None for what isn't one."""
    kind = type(value)
    if isinstance(value, random.Random):
        return value.getstate()
    if kind.__module__.startswith("numpy.random.") and kind.__name__ == "RandomState":
        name, state, *others = value.get_state()
        return name, state.tobytes(), others
    if kind.__module__.startswith("numpy.random.") and kind.__name__ == "Generator":
        return value.bit_generator.state
    if kind.__module__.startswith("torch") and kind.__name__ == "Generator":
        return value.get_state().numpy().tobytes() if value.device.type == "cpu" else None
    return None


def _digest(value: object) -> str:
    return blake2b(repr(value).encode(), digest_size=8).hexdigest()
