"""Workers forked from a process that has imported what their script imports: the launcher's side.

The server (`warm_server`) is started while the plan is being made, and again where its environment
is no longer the workers'. Where it can't be used, workers are started as fresh processes, and the
reason is said. docs/design/forkserver.md has what keeps this safe.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...core.errors import LaunchError
from ...evidence.worker_channel import WARM
from ...system import orphans
from . import tcp_store

LONGEST = 1 << 20
"""Bytes of a message."""
PATIENCE = 300.0
"""Seconds that imports may take; where they take longer, the workers do them themselves."""
LATER_PATIENCE = 30.0
"""Seconds that a relaunch waits for imports which its workers can do themselves."""
COPYING = 5.0
"""Seconds in which the server has made a copy of itself; nobody else is heard meanwhile."""
PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class Forked:
    """Workers that a server has forked; they are this process's children.

    Attributes:
        by_place: process ids by local rank.
    """

    by_place: dict[int, int]

    def pids(self) -> dict[int, int]:
        """Process ids by local rank, as elastic's contexts tell them."""
        return self.by_place

    def wait(self, _seconds: float) -> None:
        """Reaps the workers, all of which have ended."""
        for pid in self.by_place.values():
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


@dataclass(slots=True)
class Copy:
    """A copy of the server, which imports as well what a worker was seen to import.

    Attributes:
        pid: its process id.
        connection: to it.
        is_ready: it has imported everything, and may be used.
    """

    pid: int
    connection: socket.socket
    is_ready: bool = False


@dataclass(slots=True)
class Server:
    """The process that workers are forked from, if one was begun, and the connection to it.

    Attributes:
        mark: what tells the processes of this launcher from all others.
        command: a worker's command line, which is the server's too.
        environment: what the workers have for certain beyond the launcher's environment.
        own: variables that every worker has for itself.
        problem: why no worker can be forked; None where nothing speaks against it.
        store: what the next workers meet at; on node 0 alone.
        keeper: process id of a fork that hosts the store; None where the launcher does.
        unlike: why no worker is forked from a process that has imported more than this one.
        without: a package that every worker imports by itself. It may want to be imported before
            others: so none is imported until a worker has told what it has imported.
    """

    mark: str
    command: Sequence[str]
    environment: Mapping[str, str]
    own: Collection[str] = ()
    problem: str | None = None
    store: tcp_store.Store | None = None
    unlike: str | None = None
    without: str | None = None
    keeper: int | None = None
    _copy: Copy | None = None
    _process: subprocess.Popen[bytes] | None = None
    _socket: socket.socket | None = None
    _is_ready: bool = False

    def begin(self) -> None:
        """Starts it; it imports while the launcher goes on."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        imports = int(self.without is None)
        with theirs:
            self._process = subprocess.Popen(
                self.command,
                env={
                    **os.environ,
                    **self.environment,
                    orphans.VARIABLE: self.mark,
                    WARM: f"{theirs.fileno()}:{os.getpid()}:{imports}:{','.join(self.own)}",
                },
                # As a worker's will be: what Python notes of them at its start must not differ.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket, self._is_ready, self.problem = ours, False, None

    @property
    def pids(self) -> set[int]:
        """Its process ids, the copy's and that of the store's host included."""
        own = None if self._process is None else self._process.pid
        copy = None if self._copy is None else self._copy.pid
        return {one for one in (own, copy, self.keeper) if one is not None}

    def prepare(self) -> None:
        """Waits until it has imported everything, and notes what speaks against using it.

        A signal that ends the launcher ends the server too.
        """
        if self._process is None or self._is_ready:
            return
        answer = _answer(self._socket, PATIENCE)
        if answer is None:
            self.end("the process that imports for the workers has ended")
        elif "own" in answer:
            self.end(None)
            self.without = answer["reader"]
            self.begin()
            self.prepare()
            self.problem = f"{self.without} reads {answer['own']}, which each has for itself"
        elif answer["problem"] is not None:
            self.end(answer["problem"])
        else:
            self._is_ready = True

    def fork(
        self, environments: Mapping[int, Mapping[str, str]], streams: Mapping[int, Sequence[int]]
    ) -> Forked | None:
        """Workers by local rank; None where they can't be forked, for the reason in `problem`.

        Args:
            environments: of each beyond the launcher's own.
            streams: descriptors for the stdout and stderr of each.
        """
        if self._process is None:
            return None
        if self._copy is not None:
            answer = self._asked_copy(self._copy, environments, streams)
            if answer is not None:
                self.problem = None
                return self._forked(answer, environments)
        answer = self._asked(self._socket, environments, streams)
        if answer is not None and "clash" in answer:
            names = answer["clash"]
            values = [[one.get(name) for one in environments.values()] for name in names]
            if any(len(set(each)) > 1 for each in values):
                self.end(f"an import reads {names[0]}, which every worker has for itself")
                return None
            common = {name: str(each[0]) for name, each in zip(names, values, strict=True)}
            self.end(None)
            self.environment = {**self.environment, **common}
            self.begin()
            self.prepare()
            answer = self._asked(self._socket, environments, streams)
        if answer is None or "pids" not in answer:
            self.end(self.problem or "the process that imports for the workers has ended")
            return None
        return self._forked(answer, environments)

    def _forked(self, answer: Any, environments: Mapping[int, Mapping[str, str]]) -> Forked:
        self.keeper = answer["keeper"]
        return Forked(dict(zip(environments, answer["pids"], strict=True)))

    def extend(self, report: Mapping[str, Any]) -> None:
        """Has a copy made that imports what a worker has imported, for later workers.

        Args:
            report: a `later_imports.Report`; the first counts.
        """
        if self._socket is None or self._copy is not None or self.unlike is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, os.fdopen(os.memfd_create("report"), "wb") as memory:
            memory.write(json.dumps(report).encode())
            memory.flush()
            descriptors = [theirs.fileno(), memory.fileno()]
            message = json.dumps({"without": self.without}).encode()
            with suppress(OSError):
                socket.send_fds(self._socket, [message], descriptors)
            answer = _answer(self._socket, COPYING)
        if answer is None:
            ours.close()
        else:
            self._copy = Copy(answer["copy"], ours)

    def _asked_copy(
        self,
        copy: Copy,
        environments: Mapping[int, Mapping[str, str]],
        streams: Mapping[int, Sequence[int]],
    ) -> Any:
        """The copy's answer to orders for workers; None where it is to be done without."""
        if not copy.is_ready:
            first = _answer(copy.connection, LATER_PATIENCE)
            self.unlike = "it takes too long" if first is None else first["problem"]
            copy.is_ready = self.unlike is None
        answer = self._asked(copy.connection, environments, streams) if copy.is_ready else None
        if answer is not None and "pids" in answer:
            return answer
        self.unlike = self.unlike or "its environment is another one"
        copy.connection.close()
        self._copy = None
        return None

    def _asked(
        self,
        connection: socket.socket | None,
        environments: Mapping[int, Mapping[str, str]],
        streams: Mapping[int, Sequence[int]],
    ) -> Any:
        """A server's answer to orders for workers; None where there is none."""
        if connection is None or not self._is_ready:
            return None
        following = len(environments)
        _subreaper(True)
        try:
            if self.store is not None:
                message = {"port": self.store.port}
                socket.send_fds(connection, [json.dumps(message).encode()], self.store.descriptors)
            for place, environment in environments.items():
                following -= 1
                order = {"environment": environment, "following": following}
                socket.send_fds(connection, [json.dumps(order).encode()], streams[place])
            return _answer(connection, PATIENCE)
        except OSError:
            return None
        finally:
            _subreaper(False)

    def close_store(self) -> None:
        """Ends the store, of which no worker is left, and its host."""
        if self.store is not None:
            self.store.close()
        if self.keeper is not None:
            os.kill(self.keeper, signal.SIGKILL)  # it may still be importing torch
            os.waitpid(self.keeper, 0)
        self.store = self.keeper = None

    def end_of_store(self) -> LaunchError:
        """What the store's host, which has ended by itself, has died of."""
        assert self.store is not None
        assert self.keeper is not None
        status: Any = os.waitid(os.P_PID, self.keeper, os.WEXITED | os.WNOWAIT)
        if status.si_code == os.CLD_EXITED:
            reason = self.store.last_words() or f"its process ended with code {status.si_status}"
        else:
            reason = f"its process was ended by {signal.Signals(status.si_status).name}"
        return tcp_store.failed(reason)

    def end(self, problem: str | None = None) -> None:
        """Ends it, which no worker notices."""
        self.problem = problem
        if self._socket is not None:
            self._socket.close()
        if self._copy is not None:
            self._copy.connection.close()
        if self._process is not None:
            self._process.kill()  # and with it the copy
            self._process.communicate()
        self._process = self._socket = self._copy = self.unlike = None
        self._is_ready = False


def _answer(connection: socket.socket | None, seconds: float) -> Any:
    """A server's next message; None where it has ended or is silent for so long."""
    if connection is None:
        return None
    ready, _, _ = select.select([connection], [], [], seconds)
    message = b""
    with suppress(OSError):
        message = connection.recv(LONGEST) if ready else b""
    return json.loads(message) if message else None


def _subreaper(is_one: bool) -> None:
    """Whether processes that descend from this one become its children when their parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_one), 0, 0, 0)
