"""`safe-launch wrap`: runs a tool, and replaces the launches that it starts."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ..core.errors import ExitCode, LaunchError
from ..frameworks.config_files.accelerate import ALONE
from ..options import process_options
from ..options.parser import Parser
from ..options.parser import declare as declare_launch
from ..report import pod_status
from ..system import orphans, terminal, unix_sockets
from ..system.event_loop import EventLoop
from ..system.signals import REPORT, STOPS, SignalWakeup
from ..system.unix_sockets import at_folder, temporary_socket_folder
from .wrap_protocol import HELLO, LONGEST, MARK, NAME, code_of, hooked

FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, REPORT)
"""Signals for the workers; not passed on while the command has none."""
HINT = "safe-launch wrap [safe-launch options] COMMAND..."


@dataclass(slots=True)
class Connected:
    """A process below the command that has connected, and its bytes so far.

    An inner launch identifies itself by `HELLO`, and sends its exit code at its end.
    """

    pid: int
    sent: bytes = b""

    @property
    def is_launch(self) -> bool:
        """Whether it is an inner launch."""
        return self.sent.startswith(HELLO)


@dataclass(slots=True)
class WrappedRun:
    """A wrapped command, and its inner launches.

    Attributes:
        process: the command.
        patience: seconds from a stop to SIGKILL.
        mark: the value that identifies the processes below the command in their environment.
        connected: the connected processes, by connection.
        codes: exit codes of inner launches; None if one was killed before it could report.
        stop: the first signal that was to stop everything.
        deadline: when the processes left after a stop get SIGKILL, on the monotonic clock.
    """

    process: subprocess.Popen[bytes]
    patience: float
    mark: str
    connected: dict[socket.socket, Connected] = field(default_factory=dict)
    codes: list[int | None] = field(default_factory=list)
    stop: signal.Signals | None = None
    deadline: float | None = None

    @property
    def running(self) -> list[Connected]:
        """The inner launches that run."""
        return [inner for inner in self.connected.values() if inner.is_launch]

    @property
    def is_over(self) -> bool:
        """Whether the command and all its inner launches have ended."""
        return self.process.poll() is not None and not self.running

    def watch(self, listener: socket.socket, wakeup: SignalWakeup) -> None:
        """Handles launches that start and end, signals, and the command's own end."""
        with EventLoop() as loop:
            loop.on_readable(listener, lambda: self._accept(listener, loop))
            loop.on_readable(wakeup, lambda: self._answer(wakeup))
            loop.on_end(self.process.pid, lambda: None)
            while not self.is_over:
                loop.wait(self._pause())
                if self.deadline is not None and time.monotonic() >= self.deadline:
                    self.kill()
                    self.deadline = None
                orphans.reap({self.process.pid})

    def kill(self) -> None:
        """Sends SIGKILL to all processes left below the command."""
        orphans.kill(self.mark, variable=MARK)

    def _pause(self) -> float | None:
        """Seconds until something is due."""
        if self.deadline is not None:
            return max(0.0, self.deadline - time.monotonic())
        return orphans.reaping_pause()

    def _accept(self, listener: socket.socket, loop: EventLoop) -> None:
        accepted = unix_sockets.accept(listener)
        if accepted is None:
            return
        connection, pid = accepted
        if not orphans.is_marked(pid, self.mark, MARK):
            connection.close()
            return
        self.connected[connection] = Connected(pid)
        loop.on_readable(connection, lambda: self._receive(connection, loop))

    def _receive(self, connection: socket.socket, loop: EventLoop) -> None:
        """Reads from an inner launch; another process isn't waited for."""
        inner = self.connected[connection]
        was_launch = inner.is_launch
        try:
            chunk = connection.recv(LONGEST)
        except OSError:
            chunk = b""
        inner.sent = (inner.sent + chunk)[: LONGEST + 1]
        if chunk and HELLO.startswith(inner.sent[: len(HELLO)]):
            if self.stop is not None and inner.is_launch and not was_launch:
                _signal(inner.pid, self.stop)  # the tool has started another launch
            return
        loop.forget(connection)
        connection.close()
        del self.connected[connection]
        if was_launch:
            self.codes.append(code_of(inner.sent))
            if self.stop is not None and not self.running:  # the command is to stop as well
                self._stop_command(self.stop, self.patience)

    def _answer(self, wakeup: SignalWakeup) -> None:
        """Passes signals on to inner launches first, and to the command when these have ended."""
        for number in map(signal.Signals, wakeup.taken()):
            for inner in self.running:
                _signal(inner.pid, number)
            if number in FORWARDED:
                continue
            repeated = self.stop is not None
            self.stop = self.stop or number
            if not self.running:
                self._stop_command(number, 0.0 if repeated else self.patience)

    def _stop_command(self, number: signal.Signals, patience: float) -> None:
        """Sends the signal to the command and its processes, as a terminal would."""
        self.deadline = time.monotonic() + patience
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)


def declare(parser: Parser) -> None:
    """Declares the arguments."""
    declare_launch(parser)


def run(options: argparse.Namespace) -> int:
    """Runs a command; returns its exit code, or that of a failed inner launch.

    The command leads a new session, so that Ctrl-C reaches only the inner launch: most
    tools would kill their launcher at once, and the workers couldn't exit in time.

    Raises:
        LaunchError: no command is given, it can't be started, or an option is wrong.
    """
    patience = process_options.stop_times(options, os.environ).terminate
    if options.script is None:
        raise LaunchError("wrap: no command is given", HINT)
    command = [options.script, *options.arguments]
    mark = secrets.token_hex(8)
    with (
        temporary_socket_folder() as sockets,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        with at_folder(sockets, NAME) as path:
            listener.bind(path)
        listener.listen()
        guardian = orphans.guard(mark, MARK)
        is_done = False
        with SignalWakeup((*STOPS, *FORWARDED)) as wakeup:
            try:
                process = _start(command, hooked(os.environ, mark, sockets, options.option_words))
                wrapped = WrappedRun(process, patience, mark)
                wrapped.watch(listener, wakeup)
                is_done = wrapped.stop is None
            finally:
                if not is_done:  # stopped, or our own error: leave nothing unsupervised
                    orphans.kill(mark, variable=MARK)
                guardian.dismiss()
            return _exit_code(wrapped, command)


def _start(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    if shutil.which(command[0]) is None:
        where = "isn't a program" if "/" in command[0] else "isn't on PATH"
        raise LaunchError(f"wrap: `{command[0]}` {where}", HINT)
    try:
        return subprocess.Popen(command, env=environment, start_new_session=True)
    except OSError as error:
        raise LaunchError.because(error, f"wrap: `{command[0]}` can't be started") from error


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _exit_code(run: WrappedRun, command: Sequence[str]) -> int:
    """The exit code; prints an explanation if it needs one.

    Most tools turn every failure of a launch into 1; a scheduler needs the launch's own code.
    """
    status = run.process.returncode
    code = status if status >= 0 else 128 - status
    last = run.codes[-1] if run.codes else None
    if run.stop is not None:
        if code == 0 and not last:
            return ExitCode.SUCCESS
        if not run.codes:
            pod_status.write(pod_status.stop_line(run.stop), os.environ)
        return 128 + run.stop
    if not run.codes:
        terminal.say(
            f"wrap: no launch was seen: `{command[0]}` ran as without safe-launch",
            "hint: it sees torchrun, deepspeed, accelerate launch and python -m "
            "torch.distributed.run, unless PYTHONPATH is reset before them",
        )
        if "accelerate" in map(os.path.basename, command):
            terminal.say(f"hint: accelerate launch {ALONE}; safe-launch --nproc=N SCRIPT starts N")
    if code and last and code != last:
        terminal.say(f"exit code {last} of the launch; `{command[0]}` turned it into {code}")
        return last
    return code
