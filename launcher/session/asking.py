"""Asks a script itself for its plan: one process runs it up to where its settings are known.

It stands for rank 0 of the planned world, with the guards of a worker. Every question is answered
with "as asked"; where one completes the plan, the process ends instead of going on.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..core.asked import Asked, Ending
from ..core.choices import Framework
from ..core.errors import ExitCode, LaunchError
from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.settings import Value, name_of
from ..core.workload import Statement, Workload
from ..diagnosis.observed import statements
from ..evidence.asked_alone import VARIABLE, EndOfAskingError
from ..evidence.failure_record import FailureRecord
from ..evidence.from_exception import name_of as qualified
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
from ..evidence.worker_receiver import Receiver
from ..nodes.messages import Order
from ..system import files_below, orphans, run_directory, terminal
from ..system.event_loop import EventLoop
from ..system.signals import STOPS, SignalWakeup
from ..workers import start
from .launch import require_torch
from .settling import LOADING, where_of

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
"""The boundaries at which the model is made, too."""
MOST_OUTPUT, MOST_LINES = 64 << 10, 40
"""Of what the script prints, the bytes that are kept, and the lines that are shown."""
DEEPEST, MOST_FILES = 3, 5000
"""How far it is looked for files that the script writes."""
UNTRACKED = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
}
"""What keeps trackers from telling others of a training that isn't one."""
ON_META = re.compile(r"\bmeta tensors?\b|\bdevice:? ?'?meta\b|\bmeta device\b|tensors? on meta")
"""Messages of torch where values are needed of what has none."""
WITHOUT_DEVICE = re.compile(r"\b(CUDA|NVIDIA|GPU|NPU|XPU|HIP)\b", re.IGNORECASE)


@dataclass(slots=True)
class _Heard:
    """What the process has told so far."""

    questions: list[Ask] = field(default_factory=list)
    observed: dict[str, Value] = field(default_factory=dict)
    shape: dict[str, Any] | None = None
    record: FailureRecord | None = None
    is_finished: bool = False
    output: bytes = b""

    def note(self, message: object) -> None:
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
        return any(question.boundary in WHOLE for question in self.questions)

    def statements(self, source: str) -> Iterator[Statement]:
        """What was said, later words after earlier ones."""
        told = [(where_of(question), question.facts) for question in self.questions]
        for where, facts in (*told, (source, self.observed)):
            named = {name_of(name): value for name, value in facts.items()}
            yield from statements(Workload(), named, where)


def ask(request: LaunchRequest, hardware: Hardware, here: Hardware) -> Asked:
    """Runs a script in one process, up to where its plan is known, and says what it told.

    Args:
        request: the launch that is planned.
        hardware: what it is planned for.
        here: what this host has.

    Raises:
        LaunchError: it isn't Python, or can't be started.
        SystemExit: a signal has stopped it.
    """
    if request.is_program:
        problem = "plan --ask: only a Python script can be asked, not a program"
        raise LaunchError(ExitCode.USAGE, problem, "leave out --no-python, or --ask")
    require_torch()
    name = request.script if request.is_module else Path(request.script).name
    terminal.reassure(f"asking {name}: {BOUND:.0f} s at most")
    folders = [Path.cwd(), *_output_folders(request.arguments)]
    before, begun, heard = _files(folders), time.monotonic(), _Heard()
    code, number = _run(request, hardware, heard)
    seconds = time.monotonic() - begun
    if number is not None:
        terminal.say(f"{signal.Signals(number).name}: {name} is ended, there is no plan of it")
        raise SystemExit(128 + number)
    after, is_bare = _files(folders), not here.accelerators
    ending, where, why = _ending(heard, code, is_bare=is_bare)
    kinds = {here.accelerator.kind} if here.accelerators else set()
    lacks = hardware.accelerators and hardware.accelerator.kind not in kinds
    lines = heard.output.decode(errors="replace").splitlines()
    frameworks = [question.framework for question in heard.questions if question.framework]
    return Asked(
        script=name,
        ending=ending,
        seconds=seconds,
        where=where,
        why=why,
        statements=tuple(heard.statements(f"{name} itself")),
        framework=Framework(frameworks[-1]) if frameworks else None,
        shape=heard.shape,
        output="\n".join(lines[-MOST_LINES:]),
        written=tuple(_named(path) for path, at in after.items() if before.get(path) != at),
        lacking=hardware.accelerator.name if lacks else "",
    )


def _run(
    request: LaunchRequest, hardware: Hardware, heard: _Heard
) -> tuple[int | None, int | None]:
    """Runs the process to its end, at most so long; leaves nothing behind.

    Returns:
        Its exit code, None where it was ended here; and the signal that this launcher got.
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
                _listen(process, receiver, wakeup, heard)
            finally:
                is_ended = process.poll() is None
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                orphans.kill(mark)
                receiver.close()
            code = None if is_ended else process.returncode
            return code, next((each for each in wakeup.arrived if each in STOPS), None)
    finally:
        guardian.dismiss()


def _environment(
    request: LaunchRequest, hardware: Hardware, channel: str, mark: str, folder: Path
) -> dict[str, str]:
    """The variables of rank 0's worker, and of a process that is only asked."""
    port = request.placement.meeting or request.placement.port
    order = Order(0, mark, 0, request.nodes, port, {}, {}, {})
    own = start.Own(hardware.accelerator.environment)
    envs = start.environments(order, own, request, channel, mark, folder)
    tracking = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    return {**envs[0], **UNTRACKED, **tracking, VARIABLE: "1"}


def _listen(
    process: subprocess.Popen[bytes], receiver: Receiver, wakeup: SignalWakeup, heard: _Heard
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
                heard.output = (heard.output + chunk)[-MOST_OUTPUT:]
            loop.forget(output)  # nobody can print any more

    def accept() -> None:
        with suppress(BlockingIOError):
            connection = receiver.accept()
            loop.on_readable(connection, partial(hear, connection))
            hear(connection)

    def hear(connection: socket.socket) -> None:
        descriptor = connection.fileno()
        envelopes, is_open = receiver.receive(connection)
        if not is_open:
            loop.forget(descriptor)
        for envelope in envelopes:
            heard.note(envelope.message)
            if isinstance(envelope.message, Failure | Finished):
                loop.after(LEAVING, end)
            if isinstance(envelope.message, Ask) and not heard.is_whole:
                with suppress(OSError):  # it is gone
                    connection.sendall(encoded_answer(Answer(envelope.message.key)))

    with EventLoop() as loop:
        loop.on_readable(output, print_on)
        loop.on_readable(receiver.listener, accept)
        loop.on_readable(wakeup, end)
        loop.on_end(process.pid, end)
        loop.after(BOUND, end)
        while not (is_over or heard.is_whole):
            loop.wait(None)
        for connection in list(receiver.partial):  # its last words
            hear(connection)
        with suppress(KeyError, ValueError):  # its end was seen before
            print_on()


def _ending(heard: _Heard, code: int | None, *, is_bare: bool) -> tuple[Ending, str, str]:
    """How the process ended, where, and what ended it.

    Args:
        heard: what it has told.
        code: its exit code; None where it was ended.
        is_bare: this host has no accelerators.
    """
    last = where_of(heard.questions[-1]) if heard.questions else ""
    record = heard.record
    if heard.is_whole:
        return Ending.WHOLE, last, ""
    if record is None:
        if heard.is_finished:
            return Ending.OVER, last, ""
        if code is None:
            return Ending.LATE, last, ""
        how = f"it left with exit code {code}"
        if code < 0:
            how = f"it was ended by {signal.Signals(-code).name}"
        return Ending.FAILED, last, how
    own = [frame for frame in record.frames if frame.file in record.user_files]
    where = f"{_named(Path(own[-1].file))}:{own[-1].line}" if own else last
    message = record.message.strip().partition("\n")[0]
    if record.exception == qualified(EndOfAskingError):
        return Ending.CUT, where, message
    raised = f"{record.exception.removeprefix('builtins.')}: {message}".rstrip(": ")
    if raised == f"SystemExit: {record.exit_code}":
        raised = f"it left with exit code {record.exit_code}"
    if ON_META.search(record.message):
        return Ending.CUT, where, f"it needs weights there ({raised})"
    if is_bare and WITHOUT_DEVICE.search(record.message):
        return Ending.CUT, where, f"it needs a device there ({raised})"
    return Ending.FAILED, where, f"{where}: {raised}" if where else raised


def _output_folders(arguments: Sequence[str]) -> Iterator[Path]:
    """The folder that the script's arguments name for its output, outside the current one."""
    for word, following in pairwise([*arguments, ""]):
        name, equals, value = word.partition("=")
        if name in ("--output_dir", "--output-dir"):
            folder = Path(value if equals else following).absolute()
            if not folder.is_relative_to(Path.cwd()):
                yield folder


def _files(folders: Sequence[Path]) -> Mapping[Path, int]:
    """The files of these folders that a person would look at, and when they were written last."""
    found, there = {}, [each for each in folders if each.is_dir()]
    for path in files_below.find(there, DEEPEST, MOST_FILES).files:
        if path.suffix != ".pyc":
            with suppress(OSError):  # it is gone
                found[path] = path.lstat().st_mtime_ns
    return found


def _named(path: Path) -> str:
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
