"""Marks a worker's movements on its slot of the board, and times its steps."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from ..evidence.observations import observations
from ..progress.board import Phase

SHORT, REST = 20_000_000, 50_000_000
"""Nanoseconds: after a step shorter than the first, marking rests for the second. The marks of a
step cost microseconds, too much for steps of less than a millisecond."""


class StepTimes:
    """Times of the current step, in nanoseconds.

    A step's own time is the rank's time not spent waiting for others: from the optimizer's step, or
    the end of a backward pass, to the start of the next backward pass, over all micro batches,
    without collectives called from Python and DDP's buffer broadcasts. With ZeRO stage 3 the
    forward pass waits for weights, so the own time ends as it begins. Evaluation and saving
    count neither as own nor as total time. The first step, which compiles and allocates, isn't
    timed. After a short step the marks rest until a step ends; the next one is timed. Steps are
    still counted.

    Attributes:
        has_trainer: whether a Trainer reports batches, and counts a step after it.
        has_engine: whether a DeepSpeed engine reports steps.
    """

    has_trainer = has_engine = False

    def __init__(self) -> None:
        self._step: int | None = None
        self._begun = 0  # of the step; 0 before the first is done
        self._own = 0
        self._since = 0  # end of the last wait; 0 before any
        self._waits = 0  # depth of nested calls that don't count
        self._gathers = False  # its forward pass waits for weights
        self._evaluates_since = 0  # in a custom loop; 0 if it doesn't
        self._rests_until = 0  # 0 if the marks don't rest
        self._has_rested = False  # since `_begun`
        self._samples = self._tokens = 0  # since `_begun`

    def wait(self) -> int:
        """Begins a wait, which isn't own time; returns the time."""
        now = observations.progress.moved()
        if not self._waits and self._since:
            self._own += now - self._since
        self._waits += 1
        return now

    def go_on(self) -> int:
        """Ends a wait; returns the time."""
        self._waits -= 1
        self._since = now = time.monotonic_ns()
        return now

    def waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function in which a rank waits for others; compiled graphs call the original."""
        import torch

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            if self._rests_until or torch.compiler.is_compiling():
                return function(*args, **kwargs)
            self.wait()
            try:
                return function(*args, **kwargs)
            finally:
                self.go_on()

        return marked

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the backward pass, which also ends an evaluation in a custom loop."""
        import torch

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            if self._rests_until or torch.compiler.is_compiling():
                return function(*args, **kwargs)
            if self._evaluates_since:
                observations.progress.enter(Phase.TRAINING)
                self._begun += self.go_on() - self._evaluates_since
                self._evaluates_since = 0
            self.wait()
            try:
                return function(*args, **kwargs)
            finally:
                if self._gathers:
                    self._gathers = False
                    self.go_on()
                self.go_on()

        return marked

    def gather(self) -> None:
        """Begins a forward pass that waits for weights, and counts up to the next backward pass."""
        if not (self._gathers or self._rests_until):
            self._gathers = True
            self.wait()

    def evaluate(self) -> None:
        """Begins an evaluation in a custom loop, up to the next backward pass."""
        slot = observations.progress
        if slot.phase is Phase.TRAINING:
            self._rests_until = 0
            slot.enter(Phase.EVALUATION)
            self._evaluates_since = self.wait()

    def during(self, phase: Phase, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls a function as a separate phase, then continues the previous phase.

        Outside the main thread it may run while training continues.
        """
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        slot = observations.progress
        before, begun = slot.enter(phase), self.wait()
        try:
            return function(*args, **kwargs)
        finally:
            slot.enter(before)
            spent = self.go_on() - begun
            if before is Phase.TRAINING and self._begun:
                self._begun += spent

    def batch(self, samples: int, tokens: int) -> None:
        """Counts the samples and tokens of the current step."""
        self._samples += samples
        self._tokens += tokens

    def optimizer_stepped(self, *_event: Any) -> None:
        """Marks an optimizer's step; a training step may have several.

        With a Trainer or an engine, which count later, only the first is used, to detect a resume.
        """
        if self._step is None or not (self.has_trainer or self.has_engine):
            self.stepped()

    def stepped(self) -> None:
        """Marks a training step as done, in loops with a step counter.

        The first step isn't timed. A counter that begins beyond 1 has been resumed, and hasn't
        counted this step yet.
        """
        slot, step = observations.progress, observations.steps_of_all()
        if self._rests_until and time.monotonic_ns() < self._rests_until:
            slot.count(step)  # the process may end without another mark
            return
        self._since = now = slot.moved(step)
        before = self._step
        if not step or step == before:
            return
        observations.measure()
        self._step, self._rests_until = step, 0
        if before is None and step > 1:
            slot.resumed(step)
            return
        whole, seen = now - self._begun, (self._samples, self._tokens)
        if self._has_rested and before is not None:
            self._has_rested = False
            slot.trained(step - before, whole, *seen)
        elif step > 1 and self._begun:
            slot.timed(self._own, whole, *seen)
            self._has_rested = whole < SHORT
            self._rests_until = now + REST if self._has_rested else 0
        elif slot.phase is Phase.LOADING:
            slot.enter(Phase.TRAINING)
        self._begun, self._own = now, 0
        self._samples = self._tokens = 0


times = StepTimes()
"""The times of this process's steps."""
