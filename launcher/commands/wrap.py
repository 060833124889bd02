"""The command `wrap`: a tool with a launcher of its own, whose launches become safe-launch's."""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..core.errors import ExitCode, LaunchError
from ..options import process_options
from ..report import pod_status
from ..system import orphans, terminal
from ..system.signals import STOPS
from .wrap_protocol import MARK, address, hooked

FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals for the workers; a command without any doesn't get them."""
REAPING = 5.0
"""Seconds between two looks for ended orphans, as a container's first process."""
HINT = "safe-launch wrap [safe-launch options] -- COMMAND..."


@dataclass(slots=True)
class Inner:
    """An inner launch that runs.

    Attributes:
        pid: its process.
        said: what it has said: its exit code, when it comes to its end.
    """

    pid: int
    said: bytes = b""


@dataclass(slots=True)
class Course:
    """What has happened so far below a wrapped command.

    Attributes:
        process: the command.
        running: inner launches by their connection.
        codes: how inner launches have ended; None where one was killed before it could say.
        stop: the first signal that was to end it all.
        deadline: when what is left after a stop gets SIGKILL, on the monotonic clock.
    """

    process: subprocess.Popen[bytes]
    running: dict[socket.socket, Inner] = field(default_factory=dict)
    codes: list[int | None] = field(default_factory=list)
    stop: signal.Signals | None = None
    deadline: float | None = None

    @property
    def is_over(self) -> bool:
        """The command and all its inner launches have ended."""
        return self.process.poll() is not None and not self.running


def wrap(arguments: Sequence[str]) -> int:
    """Runs a command; returns its exit code, or that of the inner launch which made it fail.

    The command leads a session of its own, so that Ctrl-C comes to the inner launch alone: most
    tools would kill their launcher at once, and the workers would have no time to leave.

    Raises:
        LaunchError: no command is given, or it can't be started.
    """
    options, command = _parts(arguments)
    patience = _patience(options)
    mark = secrets.token_hex(8)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address(mark))
        listener.listen()
        guardian = orphans.guard(mark, MARK)
        arrived: list[signal.Signals] = []
        wakeup = _heed(arrived)
        try:
            course = Course(_start(command, hooked(os.environ, mark, options)))
            _attend(course, listener, wakeup, arrived, patience, lambda: _kill(mark))
            if course.stop is not None:
                _kill(mark)
        finally:
            guardian.dismiss()
    return _verdict(course, command)


def _parts(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our options and the command, which `--` parts.

    Raises:
        LaunchError: there is no command.
        SystemExit: the options ask for help, which has been printed.
    """
    place = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = list(arguments[:place]), list(arguments[place + 1 :])
    if not command:
        if {"-h", "--help"} & set(options):
            _patience(options)
        raise LaunchError(ExitCode.USAGE, "wrap: no command is given behind `--`", HINT)
    return options, command


def _patience(options: Sequence[str]) -> float:
    """Seconds from a stop to SIGKILL, by the options for inner launches.

    Raises:
        LaunchError: one of them is no option of safe-launch's.
    """
    from ..options.parser import parsed

    given = parsed(options)
    if given.script is not None:
        problem = f"wrap: `{given.script}` isn't an option of safe-launch's"
        raise LaunchError(ExitCode.USAGE, problem, HINT)
    return process_options.stop_times(given, os.environ).terminate


def _start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    if shutil.which(command[0]) is None:
        where = "is no program" if "/" in command[0] else "is in no folder of PATH"
        raise LaunchError(ExitCode.USAGE, f"wrap: `{command[0]}` {where}", HINT)
    try:
        return subprocess.Popen(command, env=environment, start_new_session=True)
    except OSError as error:
        problem = f"wrap: `{command[0]}` can't be started: {error.strerror}"
        raise LaunchError(ExitCode.USAGE, problem) from error


def _heed(arrived: list[signal.Signals]) -> socket.socket:
    """Notes the signals that come; the socket becomes readable when one does."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    for number in (*STOPS, *FORWARDED):
        signal.signal(number, lambda number, _frame: arrived.append(signal.Signals(number)))
    return reader


def _attend(
    course: Course,
    listener: socket.socket,
    wakeup: socket.socket,
    arrived: list[signal.Signals],
    patience: float,
    kill: Callable[[], None],
) -> None:
    """The loop: launches that begin and end, signals, the command's own end."""
    answered = 0
    command = course.process.pid
    ended = os.pidfd_open(command)
    with selectors.DefaultSelector() as selector:
        for source in (listener, wakeup, ended):
            selector.register(source, selectors.EVENT_READ)
        while not course.is_over:
            for key, _ in selector.select(_pause(course)):
                if key.fileobj is listener:
                    _welcome(course, listener, selector)
                elif key.fileobj is wakeup:
                    wakeup.recv(4096)
                elif key.fileobj == ended:
                    selector.unregister(ended)
                elif isinstance(key.fileobj, socket.socket):
                    _hear(course, key.fileobj, selector, patience)
            for number in arrived[answered:]:
                answered += 1
                _answer(course, number, patience)
            if course.deadline is not None and time.monotonic() >= course.deadline:
                kill()
                course.deadline = None
            orphans.reap({command})
    os.close(ended)


def _pause(course: Course) -> float | None:
    """Seconds until something is due."""
    if course.deadline is not None:
        return max(0.0, course.deadline - time.monotonic())
    return REAPING if os.getpid() == 1 else None


def _welcome(course: Course, listener: socket.socket, selector: selectors.BaseSelector) -> None:
    connection, _ = listener.accept()
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, user, _ = struct.unpack("iII", credentials)
    if user != os.getuid():
        connection.close()
        return
    course.running[connection] = Inner(pid)
    selector.register(connection, selectors.EVENT_READ)
    if course.stop is not None:  # a tool that goes on to its next launch
        _signal(pid, course.stop)


def _hear(
    course: Course,
    connection: socket.socket,
    selector: selectors.BaseSelector,
    patience: float,
) -> None:
    """What an inner launch says, or its end; after a stop the command is stopped too, then."""
    inner = course.running[connection]
    chunk = connection.recv(64)
    inner.said += chunk
    if chunk:
        return
    selector.unregister(connection)
    connection.close()
    del course.running[connection]
    text = inner.said.decode().strip()
    course.codes.append(int(text) if text.isdigit() else None)
    if course.stop is not None and not course.running:
        _stop_command(course, course.stop, patience)


def _answer(course: Course, number: signal.Signals, patience: float) -> None:
    """What a signal does: inner launches get it first, the command when they have ended."""
    for inner in course.running.values():
        _signal(inner.pid, number)
    if number in FORWARDED:
        return
    repeated = course.stop is not None
    course.stop = course.stop or number
    if not course.running:
        _stop_command(course, number, 0.0 if repeated else patience)


def _stop_command(course: Course, number: signal.Signals, patience: float) -> None:
    """Sends the signal to the command and what it has started, as a terminal would."""
    course.deadline = time.monotonic() + patience
    if course.process.poll() is None:
        os.killpg(course.process.pid, number)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _kill(mark: str) -> None:
    orphans.kill(mark, variable=MARK)


def _verdict(course: Course, command: Sequence[str]) -> int:
    """The exit code, and a word where it needs one.

    Most tools make 1 of every code of their launcher's; a scheduler needs the launch's own.
    """
    own = course.process.returncode
    code = own if own >= 0 else 128 - own
    last = course.codes[-1] if course.codes else None
    if course.stop is not None:
        if code == 0 and not last:
            return ExitCode.SUCCESS
        if not course.codes:
            pod_status.write(pod_status.stop_line(course.stop), os.environ)
        return 128 + course.stop
    if not course.codes:
        terminal.say(
            f"wrap: no launch was seen: `{command[0]}` has run as without safe-launch",
            "hint: seen are torchrun, deepspeed, accelerate launch and python -m "
            "torch.distributed.run, where PYTHONPATH isn't set anew before them",
        )
    if code and last and code != last:
        terminal.say(f"exit code {last}: the launch's; `{command[0]}` made {code} of it")
        return last
    return code
