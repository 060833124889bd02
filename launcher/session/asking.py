"""Asks a script for its plan: one process runs it until its settings are known.

The script is rank 0 of the planned world. Every question is answered with "as asked"; the process
ends once a question completes the plan.
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
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..core.choices import Framework
from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.script import Ending, ScriptAnswers
from ..core.settings import Value, name_of
from ..core.workload import Statement, Workload
from ..diagnosis.observed import statements
from ..evidence.failure_record import FailureRecord
from ..evidence.from_exception import name_of as qualified
from ..evidence.worker_messages import (
    ASKED_ALONE,
    Answer,
    Ask,
    Boundary,
    EndOfQueryError,
    Failure,
    FailureBegun,
    Finished,
    ModelShape,
    Observed,
    encoded_answer,
)
from ..evidence.worker_receiver import Envelope, Receiver
from ..nodes.messages import Order
from ..system import orphans, regular_files, run_directory, terminal
from ..system.event_loop import EventLoop
from ..system.signals import STOPS, SignalWakeup
from ..system.unix_sockets import temporary_socket_folder
from ..workers import start
from ..workers.environment import NodeContext, environments
from ..workers.forkserver.client import Server
from .head import require_torch
from .judgement import LOADING, where_of

MOST_LINES = 40
"""Lines of the script's output that are shown, the last."""
DEEPEST, MOST_FILES = 3, 5000
"""Limits on the search for files that the script writes."""
ON_META = re.compile(r"\bmeta tensors?\b|\bdevice:? ?'?meta\b|\bmeta device\b|tensors? on meta")
"""Messages of torch if values of a tensor on the meta device are needed."""
WITHOUT_DEVICE = re.compile(r"\b(CUDA|NVIDIA|GPU|NPU|XPU|HIP)\b", re.IGNORECASE)
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


def ask(request: LaunchRequest, hardware: Hardware, here: Hardware) -> ScriptAnswers:
    """Runs a script in one process until its plan for some hardware is known; returns its answers.

    This host has the hardware `here`.

    Raises:
        LaunchError: it isn't Python, or can't be started.
        SystemExit: a signal has stopped it.
    """
    if request.is_program:
        problem = "plan --ask: only a Python script can be asked, not a program"
        raise LaunchError(problem, "leave out --no-python, or --ask")
    require_torch()
    name = request.script if request.is_module else Path(request.script).name
    terminal.reassure(f"asking {name}: {BOUND:.0f} s at most")
    folders = [Path.cwd(), *_output_folders(request.arguments)]
    before, begun, reports = _files(folders), time.monotonic(), Reports()
    code, number = run(request, hardware, reports)
    seconds = time.monotonic() - begun
    if number is not None:
        terminal.say(f"{signal.Signals(number).name}: {name} is stopped without a plan")
        raise SystemExit(128 + number)
    after, is_bare = _files(folders), not here.accelerators
    ending, where, why = _ending(reports, code, is_bare=is_bare)
    kinds = {here.accelerator.kind} if here.accelerators else set()
    lacks = hardware.accelerators and hardware.accelerator.kind not in kinds
    lines = reports.output.decode(errors="replace").splitlines()
    frameworks = [question.framework for question in reports.questions if question.framework]
    return ScriptAnswers(
        script=name,
        ending=ending,
        seconds=seconds,
        where=where,
        why=why,
        statements=tuple(reports.statements(f"{name} itself")),
        framework=Framework(frameworks[-1]) if frameworks else None,
        shape=reports.shape,
        output="\n".join(lines[-MOST_LINES:]),
        written=tuple(_named(path) for path, at in after.items() if before.get(path) != at),
        lacking=hardware.accelerator.name if lacks else "",
    )


def _ending(reports: Reports, code: int | None, *, is_bare: bool) -> tuple[Ending, str, str]:
    """How the process ended, where, and why; `code` is None if it was ended by the launcher.

    The host `is_bare` if it has no accelerators.
    """
    last = where_of(reports.questions[-1]) if reports.questions else ""
    record = reports.record
    if reports.is_whole:
        return Ending.WHOLE, last, ""
    if record is None:
        if reports.is_finished:
            return Ending.OVER, last, ""
        if code is None:
            return Ending.LATE, last, ""
        how = f"it left with exit code {code}"
        if code < 0:
            how = f"it was ended by {signal.Signals(-code).name}"
        return Ending.FAILED, last, how
    frames = [frame for frame in record.frames if frame.file in record.user_files]
    where = f"{_named(Path(frames[-1].file))}:{frames[-1].line}" if frames else last
    message = record.message.strip().partition("\n")[0]
    if record.exception == qualified(EndOfQueryError):
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
    """The files of these folders without bytecode, and when they were last written."""
    times, existing = {}, [folder for folder in folders if folder.is_dir()]
    for path in regular_files.files_below(existing, DEEPEST, MOST_FILES).files:
        if path.suffix != ".pyc":
            with suppress(OSError):  # it is gone
                times[path] = path.lstat().st_mtime_ns
    return times


def _named(path: Path) -> str:
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


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
    return {**envs[0], **UNTRACKED, **tracking, ASKED_ALONE: "1"}


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
