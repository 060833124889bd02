"""The connection to a host: an ssh process that starts `remote_main` there, and its errors."""

from __future__ import annotations

import os
import queue
import select
import selectors
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from ...core.errors import ExitCode, LaunchError
from ...core.output_routing import LONGEST, QUIET
from ...options.hostfile import Host
from ...options.node_options import Shell
from ...system import terminal
from . import remote_main

LEAVING = 5.0
"""Seconds for ssh to end, once the host has reported how the launcher there ended."""
LOST = 255
"""The exit code of ssh for its own failures (ssh(1))."""
MARK = terminal.MARK.encode()
_CONSOLE = threading.Lock()
"""Held while a host's lines are written."""


def command(shell: Shell, host: str, run: str) -> list[str]:
    """The ssh command that starts `remote_main`; it contains nothing of the job.

    `remote_main` notices by itself when the connection is cut, and so does ssh with these
    options: within `remote_main.SILENCE` seconds.
    """
    port = [] if shell.port is None else ["-p", str(shell.port)]
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": "20",
        "ServerAliveInterval": f"{remote_main.SILENCE / 3:.0f}",
        "ServerAliveCountMax": "3",
        "ControlMaster": "no",  # a lasting master would keep our pipes open
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    remote = shlex.join([sys.executable, "-P", "-m", "safe_launch.nodes.ssh.remote_main", run])
    return ["ssh", "-T", *port, *shell.arguments, *words, "--", host, f"exec {remote}"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a host, or a signal.

    Attributes:
        kind: `ready`, `started` or `ended` as reported by a host; `gone` when its ssh has ended;
            `signal` for a signal to this process.
        host: index of the host; -1 for a signal.
        text: the host's address, the exit code, or the signal's number.
    """

    kind: str
    host: int
    text: str = ""


@dataclass(slots=True)
class Connection:
    """A host, the ssh that leads to it, and what it has reported.

    Attributes:
        host: as in the hostfile.
        process: the ssh.
        heard: the kinds of events so far.
        address: where ssh reached the host; empty if its server doesn't say.
        code: exit code of the launcher there; None while it runs, or if it is unknown.
        complaints: output before the host answered, from ssh or a shell.
        is_first: it is the first host, whose launcher prints for all; the others' lines are kept.
        kept: the latest of these lines.
    """

    host: Host
    process: subprocess.Popen[bytes]
    heard: set[str] = field(default_factory=set)
    address: str = ""
    code: int | None = None
    complaints: list[str] = field(default_factory=list)
    is_first: bool = True
    kept: deque[str] = field(default_factory=lambda: deque(maxlen=500))
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: Event) -> None:
        """Records an event of this host."""
        self.heard.add(event.kind)
        if event.kind == "ready":
            self.address = event.text
        elif event.kind == "ended":
            self.code = int(event.text)
        elif event.kind == "gone" and self.code is None:
            ended = self.process.returncode
            self.code = None if ended == LOST or ended < 0 else ended

    def send(self, line: bytes) -> None:
        """Sends a line to the host; does nothing if the connection is closed."""
        with self._sending, suppress(OSError, ValueError):
            while line:
                line = line[self._stdin.write(line) :]

    def part(self) -> None:
        """Closes the host's input, so that the host stops its processes."""
        with suppress(OSError):
            self._stdin.close()

    def end(self, patience: float) -> None:
        """Waits for ssh to end within the time, then kills it."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin


def connect(
    host: Host, index: int, shell: Shell, run: str, events: queue.SimpleQueue[Event]
) -> Connection:
    """Starts the ssh to a host, and a thread that queues its events.

    The terminal's signals don't reach it: the launcher passes them on.

    Raises:
        LaunchError: ssh isn't installed.
    """
    try:
        process = subprocess.Popen(
            command(shell, host.name, run),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        problem = "there is no ssh here, and the hosts of a hostfile are reached over it"
        raise LaunchError(problem, "install openssh-client") from error
    connection = Connection(host, process, is_first=index == 0)
    listening = (connection, index, remote_main.mark(run).encode(), events)
    threading.Thread(target=_listen, args=listening, name=host.name, daemon=True).start()
    return connection


def _listen(
    connection: Connection, index: int, mark: bytes, events: queue.SimpleQueue[Event]
) -> None:
    """Passes on a host's output, line by line, and takes its events out."""
    process = connection.process
    waiting = {1: b"", 2: b""}
    kinds: set[str] = set()  # of the events so far

    def take(console: int, text: bytes) -> None:
        while (at := text.find(mark)) >= 0:
            words, _, rest = text[at + len(mark) :].partition(b"\n")
            kind, _, value = words.decode().partition(" ")
            kinds.add(kind)
            events.put(Event(kind, index, value))
            show(console, text[:at])
            text = rest
        show(console, text)

    def show(console: int, text: bytes) -> None:
        if not kinds:
            connection.complaints += text.decode(errors="replace").splitlines()
        elif console == 2 and not connection.is_first:
            lines = text.splitlines(keepends=True)
            marked = [line for line in lines if line.startswith(MARK)]
            connection.kept += [
                line[len(MARK) :].decode(errors="replace").rstrip() for line in marked
            ]
            _write(console, b"".join(line for line in lines if line not in marked))
        else:
            _write(console, text)

    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, 1)  # type: ignore[arg-type]
        selector.register(process.stderr, selectors.EVENT_READ, 2)  # type: ignore[arg-type]
        while selector.get_map():
            is_partial = any(text and mark[:1] not in text for text in waiting.values())
            ready = selector.select(QUIET if is_partial else LEAVING if "ended" in kinds else None)
            if not ready and not is_partial:
                break  # a process there still holds a pipe
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                text = waiting[key.data] + chunk
                end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
                end = end if chunk and len(text) < LONGEST else len(text)
                take(key.data, text[:end])
                waiting[key.data] = text[end:]
            for console, text in waiting.items():
                if not ready and mark[:1] not in text:
                    take(console, text)
                    waiting[console] = b""
    if "ended" not in kinds:
        process.wait()
    events.put(Event("gone", index))


def _write(console: int, text: bytes) -> None:
    """Writes to the console; if that is closed (`| head`), the training continues."""
    with _CONSOLE, suppress(OSError):
        while text:
            select.select([], [console], [])
            text = text[os.write(console, text) :]


_SAME_PATH = "the environment must be at the same path on all hosts"
_REFUSALS = (
    (
        "host key verification failed",
        "its key isn't known here, or has changed",
        "log in once by hand, `ssh {host}`, and accept the key if it's right",
    ),
    (
        "permission denied",
        "ssh isn't let in without a password",
        "ssh-copy-id {host}, or ssh-add; then `ssh -o BatchMode=yes {host} true` must work",
    ),
    (
        "could not resolve hostname",
        "the name has no address",
        "is it spelt as in /etc/hosts, the DNS or ~/.ssh/config?",
    ),
    ("no module named", "safe-launch isn't installed for {python} there", _SAME_PATH),
    ("not found", "there is no {python}", _SAME_PATH),
    ("no such file", "there is no {python}", _SAME_PATH),
)
"""Errors of ssh or the shell that the user must fix: the text, its meaning, what to do."""


def refused(connections: Sequence[Connection], source: str) -> LaunchError:
    """Why hosts didn't answer, each with its line of the hostfile.

    The exit code advises another allocation only if each of these hosts may simply be down.
    """
    problems: list[str] = []
    hints: dict[str, None] = {}
    codes: set[ExitCode] = set()
    for connection in connections:
        text = " ".join(" ".join(connection.complaints).split())
        known = next((entry for entry in _REFUSALS if entry[0] in text.lower()), None)
        words = {"host": connection.host.name, "python": sys.executable}
        if known is None:
            codes.add(ExitCode.RETRY_ELSEWHERE)
            meaning = "can't be reached"
            hints[f"--exclude {connection.host.name} goes without it"] = None
        else:
            codes.add(ExitCode.USAGE)
            meaning = known[1].format(**words)
            hints[known[2].format(**words)] = None
        answer = f" ({text[-300:]})" if text else ": no answer"
        problems.append(f"{place(connection.host, source)}: {meaning}{answer}")
    code = ExitCode.USAGE if ExitCode.USAGE in codes else ExitCode.RETRY_ELSEWHERE
    return LaunchError("\n".join(problems), "\n".join(hints), code=code)


def place(host: Host, source: str) -> str:
    """A host's name, with the line of the hostfile."""
    return f"host {host.name} ({source}:{host.line})" if host.line else f"host {host.name}"
