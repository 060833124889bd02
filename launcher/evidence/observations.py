"""Observations by a worker's guards: facts, settings in force, models, steps."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..core.choices import Checkpointing
from ..core.model import output_of, shape_of
from ..core.private_names import MissingNameError
from ..core.settings import Fact, Setting, Value
from ..progress.board import Phase
from ..progress.slot import Slot, unread_slot
from . import from_memory
from .worker_messages import Answer, Ask, Imports, Message, ModelShape, Observed, Remark

PAUSE = 2.0
"""Seconds between memory measurements, each of some tens of microseconds."""


class _OtherModels:
    """Counts each model once, even if seen several times or in wrappers."""

    def __init__(self) -> None:
        # Keyed by the parameter's id, valid while its module lives: `swap_tensors`, which moves
        # FSDP2's models, refuses weakly referenced parameters.
        self._owners: dict[int, weakref.ref[Any]] = {}
        self._first = -1
        self._counted: dict[str, Value] = {}

    def begin(self, model: Any) -> None:
        """Remembers the trained model."""
        self._first = self._hold(model)

    def add(self, model: Any, *, is_trained: bool) -> dict[str, Value]:
        """Facts changed by another model.

        A model that shares parameters with an earlier one is the same, wrapped or extended. The
        first frozen one of the trained model's size is its copy.
        """
        if any(self._is_held(parameter) for parameter in model.parameters()):
            return {}
        size = self._hold(model)
        copied = Fact.REFERENCE_MODEL.value
        if size == self._first and not is_trained and copied not in self._counted:
            news: dict[str, Value] = {copied: True}
        else:
            name = (Fact.TRAINED_BESIDE if is_trained else Fact.FROZEN_BESIDE).value
            news = {name: int(self._counted.get(name, 0)) + size} if size else {}
        self._counted |= news
        return news

    def _hold(self, model: Any) -> int:
        """Remembers a model's parameters; returns their number of elements."""
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                self._owners[id(parameter)] = weakref.ref(module)
        return sum(map(size_of, model.parameters()))

    def _is_held(self, parameter: Any) -> bool:
        """Whether an earlier live model has the parameter; ids may be reused."""
        owner = self._owners.get(id(parameter))
        return owner is not None and owner() is not None


def size_of(parameter: Any) -> int:
    """Elements of the whole parameter, even if ZeRO-3 partitions it."""
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())


class Observations:
    """Observations by this worker's guards; new ones are sent to the launcher.

    Attributes:
        observed: settings in force and facts, by name.
        before_model: bytes of the process's data at the first model's appearance, without the
            model's.
        has_trained: whether an earlier training of this process made steps.
        progress: this rank's slot on the board; unused outside of a worker and in its forks.
    """

    def __init__(self) -> None:
        self.observed: dict[str, Value] = {}
        self.before_model: int | None = None
        self._addresses = 0  # of the process at most, until then
        self._measured = -math.inf  # when the memory was last looked at
        self.has_trained = False
        self.progress = unread_slot()
        self._models: list[weakref.ref[Any]] = []
        self._others = _OtherModels()
        self._steps: list[tuple[Callable[[], int | None], int]] = []
        self._send: Callable[[Message], None] | None = None
        self._ask: Callable[[Ask], Answer | None] | None = None
        self._passed: Counter[str] = Counter()  # how often each way to a boundary was gone
        self._remarks: list[str] = []
        self._report_imports: Callable[[], dict[str, Any]] | None = None

    def report_to(
        self,
        send: Callable[[Message], None],
        ask: Callable[[Ask], Answer | None] | None = None,
    ) -> None:
        """Sets the functions that send messages and ask, once the worker is forked.

        `ask` waits for the answer; None to ask nothing.
        """
        self._send, self._ask = send, ask
        for sentence in self._remarks:
            send(Remark(sentence))

    def show_on(self, progress: Slot) -> None:
        """Sets this rank's slot on the board, used only by this process."""
        self.progress = progress
        progress.begin(threading.get_ident())
        os.register_at_fork(after_in_child=self._leave_board)

    def _leave_board(self) -> None:
        self.progress = unread_slot()

    def report_imports_by(self, report: Callable[[], dict[str, Any]]) -> None:
        """Sets the function that reports imports, sent once a model is seen."""
        self._report_imports = report

    def send(self, message: Message) -> None:
        """Sends a message to the launcher, if there is one; a message counts as movement."""
        self.progress.moved()
        if self._send is not None:
            self._send(message)

    def ask(self, question: Ask) -> Answer | None:
        """The launcher's answer at a boundary; None for no changes.

        Numbers questions with equal keys, from repeated passes, as in a loop.
        """
        if self._ask is None:
            return None
        self._passed[question.key] += 1
        self.progress.moved()
        key = f"{question.key}#{self._passed[question.key]}"
        return self._ask(replace(question, key=key, step=self.step()))

    def remark(self, sentence: str) -> None:
        """Sends the launcher a sentence for the user, once."""
        if sentence not in self._remarks:
            self._remarks.append(sentence)
            self.send(Remark(sentence))

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Leaves the block if a package lacks a required name, reports that, and continues."""
        try:
            yield
        except MissingNameError as error:
            self.remark(error.problem)

    def see(self, **seen: Value | None) -> None:
        """Notes settings in force and facts, and sends the new ones to the launcher.

        Reentrant checkpointing stays once seen: one reentrant block suffices for the failures that
        depend on it.
        """
        news: dict[str, Value] = {}
        for name, value in seen.items():
            earlier = self.observed.get(name)
            if value is None or earlier == value:
                continue
            if name == Setting.GRADIENT_CHECKPOINTING and earlier == Checkpointing.REENTRANT:
                continue
            news[name] = self.observed[name] = value
        if news:
            self.send(Observed(news, self.step()))

    def see_model(self, model: Any, *, is_trained: bool = True) -> None:
        """Remembers a model for its parameters' names, and notes whether parts are frozen.

        Describes the first model with trained parameters. Counts other models until the first step.
        Not `is_trained` is one that nothing trains, even if its parameters require gradients; the
        model is None if a framework got none.
        """
        if model is None or any(reference() is model for reference in self._models):
            return
        trained = [bool(parameter.requires_grad) for parameter in model.parameters()]
        is_trained = is_trained and any(trained)
        # An unusual model may raise here but still train.
        with contextlib.suppress(Exception):
            if not is_trained or self._models:
                news = self._others.add(model, is_trained=is_trained)
                self.see(**({} if any(counter() for counter, _ in self._steps) else news))
            else:
                self._others.begin(model)
        if not is_trained:
            return
        self._models.append(weakref.ref(model))
        if len(self._models) == 1:
            with contextlib.suppress(Exception):
                self._describe_first(model)
        self.see(**{Fact.FROZEN_PARAMETERS: not all(trained)})

    def is_first(self, model: Any) -> bool:
        """Whether a model is the first live trained one, possibly wrapped or extended."""
        *_, first = (None, *self.models())
        if first is None or model is None or first is model:
            return True
        parameters = {id(parameter) for parameter in first.parameters()}
        return any(id(parameter) in parameters for parameter in model.parameters())

    def _describe_first(self, model: Any) -> None:
        """Notes the process's memory before the model, and sends the model's shape."""
        model_bytes = sum(map(bytes_of, model.parameters()))
        self.before_model = max(from_memory.process_data() - model_bytes, 0)
        self._addresses = from_memory.most_addresses()
        self.see(**{Fact.OUTPUT: output_made_by(model)})
        self.send(ModelShape(shape_of(model)))
        if self._report_imports is not None:
            self.send(Imports(self._report_imports()))

    def count_steps(self, counter: Callable[[], int | None]) -> None:
        """Adds a counter of optimizer steps; the last counter takes precedence.

        If there are earlier steps, another training begins, counted from 0.
        """
        self.has_trained = self.has_trained or bool(self.step())
        self._steps.append((counter, self.steps_of_all() or 0))

    def step(self) -> int | None:
        """Optimizer steps of the current training; None without a counter."""
        return next((count for count, _ in self._counts()), None)

    def steps_of_all(self) -> int | None:
        """Optimizer steps of all trainings of this process in sequence."""
        return next((before + count for count, before in self._counts()), None)

    def _counts(self) -> Iterator[tuple[int, int]]:
        """The counters' values, the last first, and the steps before each."""
        for counter, before in reversed(self._steps):
            if (count := counter()) is not None:
                yield count, before

    def measure(self) -> None:
        """Notes the training's peak memory on the board, unless noted recently."""
        now = time.monotonic()
        if self.before_model and now - self._measured >= PAUSE:
            self._measured = now
            with contextlib.suppress(Exception):  # no measurement ends a training
                peak = from_memory.peak_so_far(self.before_model, self._addresses)
                self.progress.held(*(peak or (0, 0)))

    def end(self) -> None:
        """Notes on the board the script's completion and its training's memory."""
        with contextlib.suppress(Exception):  # a counter or a device may not answer any more
            step = self.steps_of_all()  # fewer after a resume, if their counter is gone
            self.progress.moved(None if step is None else max(step, self.progress.step))
            peak = self.before_model and from_memory.peak(self.before_model, self._addresses)
            self.progress.held(*(peak or (0, 0)))
        self.progress.enter(Phase.ENDED)

    def models(self) -> Iterator[Any]:
        """The live models, latest first."""
        for reference in reversed(self._models):
            if (model := reference()) is not None:
                yield model

    def describe_model(self) -> dict[str, Value]:
        """The latest model: class, numbers of trained and frozen parameters, use of peft."""
        for model in self.models():
            trainable = frozen = 0
            for parameter in model.parameters():
                if parameter.requires_grad:
                    trainable += size_of(parameter)
                else:
                    frozen += size_of(parameter)
            return {
                "class": type(model).__name__,
                "trainable_parameters": trainable,
                "frozen_parameters": frozen,
                "peft": any(hasattr(module, "peft_config") for module in model.modules()),
            }
        return {}


observations = Observations()
"""Those of this process, which all of its guards share."""


def bytes_of(parameter: Any) -> int:
    """Bytes of a parameter in this process; of FSDP2's, this rank's shard."""
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return int(local.numel()) * int(local.element_size())


def output_made_by(model: Any) -> str | None:
    """The kind of a model's output, from its classes; None if unknown."""
    names = (kind.__name__ for part in model.modules() for kind in type(part).mro())
    return next(filter(None, map(output_of, names)), None)
