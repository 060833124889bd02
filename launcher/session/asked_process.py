"""Runs a script as rank 0 of the planned world, for the plan that it asks for.

Every question is answered with "as asked"; the process ends once a question completes the plan.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.settings import Value, name_of
from ..core.workload import Statement, Workload
from ..diagnosis.observed import statements
from ..evidence.failure_record import FailureRecord
from ..evidence.plan_query import VARIABLE
from ..evidence.socket_folder import temporary_socket_folder
from ..evidence.worker_messages import (
    Answer,
    Ask,
    Boundary,
    Failure,
    FailureBegun,
    Finished,
    ModelShape,
    Observed,
    encoded_answer,
)
from ..evidence.worker_receiver import Envelope, Receiver
from ..nodes.messages import Order
from ..system import orphans, run_directory
from ..system.event_loop import EventLoop
from ..system.signals import STOPS, SignalWakeup
from ..workers import start
from ..workers.environment import NodeContext, environments
from ..workers.forkserver.client import Server
from .questions import LOADING, where_of

BOUND = 120.0
"""Seconds that the script may run at most."""
LEAVING = 5.0
"""Seconds for its exit handlers, once it has failed or finished."""
WHOLE = frozenset(Boundary) - {
    Boundary.TRAINING_ARGUMENTS,
    Boundary.ACCELERATOR,
    Boundary.PARTITION,
    *LOADING,
}
"""The boundaries at which the model has been made, too."""
MOST_OUTPUT = 64 << 10
"""Bytes of the script's output that are kept, the last."""
UNTRACKED = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
}
"""Variables that keep trackers and hubs from reporting this run."""


@dataclass(slots=True)
class Reports:
    """The process's messages so far."""

    questions: list[Ask] = field(default_factory=list)
    observed: dict[str, Value] = field(default_factory=dict)
    shape: dict[str, Any] | None = None
    record: FailureRecord | None = None
    is_finished: bool = False
    output: bytes = b""

    def note(self, message: object) -> None:
        """Keeps a message's content; later messages take precedence."""
        match message:
            case Ask():
                self.questions.append(message)
                self.shape = message.shape or self.shape
            case Observed(observed=observed):
                self.observed.update(observed)
            case ModelShape(shape=shape):
                self.shape = shape
            case FailureBegun(record=record) | Failure(record=record):
                self.record = record
            case Finished():
                self.is_finished = True

    @property
    def is_whole(self) -> bool:
        """Whether the last question was asked at the boundary at which the plan is complete."""
        return any(question.boundary in WHOLE for question in self.questions)

    def statements(self, source: str) -> Iterator[Statement]:
        """The messages, in order."""
        asked = [(where_of(question), question.facts) for question in self.questions]
        for where, facts in (*asked, (source, self.observed)):
            named = {name_of(name): value for name, value in facts.items()}
            yield from statements(Workload(), named, where)


def run(
    request: LaunchRequest, hardware: Hardware, reports: Reports
) -> tuple[int | None, int | None]:
    """Runs the process to its end, for at most `BOUND`; leaves nothing behind.

    Returns:
        Its exit code, None if it was ended here; and the signal that this launcher got.
    """
    mark = run_directory.new_id()
    guardian = orphans.guard(mark)
    try:
        with temporary_socket_folder() as folder, SignalWakeup(STOPS) as wakeup:
            receiver = Receiver(folder)
            process = subprocess.Popen(
                start.command(request),
                env={**os.environ, **_environment(request, hardware, receiver.path, mark, folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                _listen(process, receiver, wakeup, reports)
            finally:
                is_ended = process.poll() is None
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                orphans.kill(mark)
                receiver.close()
            code = None if is_ended else process.returncode
            return code, next((number for number in wakeup.arrived if number in STOPS), None)
    finally:
        guardian.dismiss()


def _environment(
    request: LaunchRequest, hardware: Hardware, channel: str, mark: str, folder: Path
) -> dict[str, str]:
    """The variables of rank 0's worker, and those of a process that is only queried."""
    port = request.placement.meeting or request.placement.port
    order = Order(0, mark, 0, request.nodes, port, {}, {}, {})
    node = NodeContext(request, Server(mark, (), {}), hardware.accelerator.environment)
    envs = environments(order, node, channel, folder)
    tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    return {**envs[0], **UNTRACKED, **tracking, VARIABLE: "1"}


def _listen(
    process: subprocess.Popen[bytes], receiver: Receiver, wakeup: SignalWakeup, reports: Reports
) -> None:
    """Returns once the process has ended, all is known, the time is over, or a signal has come."""
    assert process.stdout is not None, "its output is a pipe"
    output = process.stdout.fileno()
    os.set_blocking(output, False)
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True

    def print_on() -> None:
        with suppress(BlockingIOError):
            while chunk := os.read(output, MOST_OUTPUT):
                reports.output = (reports.output + chunk)[-MOST_OUTPUT:]
            loop.forget(output)  # nobody can print any more

    def hear(envelope: Envelope, connection: socket.socket) -> None:
        reports.note(envelope.message)
        if isinstance(envelope.message, Failure | Finished):
            loop.after(LEAVING, end)
        if isinstance(envelope.message, Ask) and not reports.is_whole:
            with suppress(OSError):  # it is gone
                connection.sendall(encoded_answer(Answer(envelope.message.key)))

    with EventLoop() as loop:
        loop.on_readable(output, print_on)
        read_rest = receiver.listen(loop, hear)
        loop.on_readable(wakeup, end)
        loop.on_end(process.pid, end)
        loop.after(BOUND, end)
        while not (is_over or reports.is_whole):
            loop.wait(None)
        read_rest()  # its last words
        with suppress(KeyError, ValueError):  # its end was seen before
            print_on()
