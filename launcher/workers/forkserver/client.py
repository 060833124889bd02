"""The launcher's side of the fork server, a process that imports for the workers and forks them.

It starts while the plan is being made, and restarts if its environment no longer matches the
workers'. If it can't be used, workers start as fresh processes, and a message gives the reason.
docs/design/forkserver.md explains what keeps this safe.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import LaunchError
from ...system import orphans, terminal
from ...system.signals import SignalWakeup, StoppedError
from . import handover, tcp_store
from .forking_process import TRANSITIONS, Environments, Forked, ForkingProcess, State, Streams
from .handover import TakenOver
from .messages import (
    WARM,
    AskEnd,
    Copied,
    EnvironmentDiffers,
    HasEnded,
    Launch,
    MakeCopy,
    Message,
    Readiness,
    Start,
    Unshared,
    WorkersForked,
    send,
)

IMPORT_SECONDS = 300.0
"""Seconds for the imports; after that, the workers do them themselves."""
QUIET = 10.0
"""Seconds after which a message at a terminal explains the wait."""
COPY_IMPORT_SECONDS = 30.0
"""Seconds that a relaunch waits for further imports, which its workers could do themselves."""
COPY_SECONDS = 5.0
"""Seconds for the server to copy itself; it answers nothing else meanwhile."""
ENDED = "the process that imports for the workers has ended"


@dataclass(slots=True)
class Server:
    """The fork server, if it was started, and the connection to it.

    Attributes:
        mark: identifies the processes of this launcher.
        command: the command line of a worker, and of the server.
        environment: variables of all workers in addition to the launcher's.
        per_rank_variables: variables that differ between ranks.
        problem: why no worker can be forked, or why each does its imports itself; None if neither.
        store: the store of the next workers; on node 0 alone.
        store_host: process id of a fork that hosts the store; None if the launcher does.
        excluded_package: a package that every worker imports by itself. Its place in the order of
            imports may matter, so nothing is preloaded until a worker has reported its imports.
        copy_refused: why no worker is forked from a copy that has imported more.
        keep_seconds: how long a copy waits for the next launch.
        warm_key: key that the next launch must share (`handover.warm_key`); empty for no copy.
        state: which process workers can be forked from.
        wakeup: signals to the launcher, which end every wait for an answer.
    """

    mark: str
    command: Sequence[str]
    environment: Mapping[str, str]
    per_rank_variables: Sequence[str] = ()
    problem: str | None = None
    store: tcp_store.Store | None = None
    store_host: int | None = None
    excluded_package: str | None = None
    copy_refused: str | None = None
    keep_seconds: float = 0.0
    warm_key: str = ""
    state: State = State.NONE
    wakeup: SignalWakeup = field(default_factory=lambda: SignalWakeup(()))
    _process: subprocess.Popen[bytes] | TakenOver | None = None
    _original: ForkingProcess | None = None
    _copy: ForkingProcess | None = None

    def begin(self) -> None:
        """Takes over a server that an earlier launch has left, or starts one."""
        if self.warm_key:
            folder = str(Path.cwd())
            launch = Launch(self.command, self._variables(), folder, self.per_rank_variables)
            if taken := handover.take_over(self.warm_key, launch):
                self._enter(State.IMPORTING)
                self._process, self._original = taken
                return
        self.start()

    def _variables(self) -> dict[str, str]:
        """All variables of the server."""
        return {**os.environ, **self.environment, orphans.VARIABLE: self.mark}

    def start(self) -> None:
        """Starts the server, which imports while the launcher continues."""
        self._enter(State.IMPORTING)
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        does_import, may_be_kept = self.excluded_package is None, bool(self.warm_key)
        variables = self.per_rank_variables
        start = Start(far.fileno(), os.getpid(), does_import, variables, may_be_kept)
        with far:
            process = subprocess.Popen(
                self.command,
                env={**self._variables(), WARM: start.to_text()},
                # Pipes like a worker's: Python derives state from them when it starts.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[far.fileno()],
                start_new_session=True,
            )
        self._process, self._original = process, ForkingProcess(process.pid, near)
        self.problem = None

    @property
    def pids(self) -> set[int]:
        """Process ids of the server, its copy and the store's host."""
        forking = {process.pid for process in (self._original, self._copy) if process is not None}
        return forking if self.store_host is None else {*forking, self.store_host}

    def prepare(self) -> None:
        """Waits until the server has imported everything; sets `problem` if it can't be used.

        Raises:
            StoppedError: a signal stops the launcher.
        """
        unshared = None
        while self._original is not None and self.state is State.IMPORTING:
            if not self.wakeup.wait_for(self._original.connection, QUIET):
                terminal.reassure("running the script's first imports, once for all workers")
            match self._original.answer(IMPORT_SECONDS, self.wakeup):
                case Readiness(problem=None):
                    self._enter(State.READY)
                case Readiness(problem=problem):
                    self.end(problem)
                case Unshared(package=package, reason=reason):
                    unshared = f"{package} {reason}"
                    self.end()
                    self.excluded_package = package
                    self.start()
                case _:
                    self.end(ENDED)
        self.problem = unshared or self.problem

    def fork(self, environments: Environments, streams: Streams) -> Forked | None:
        """Forks workers; returns None if that is impossible, with the reason in `problem`.

        Raises:
            StoppedError: a signal stops the launcher.
        """
        self.prepare()
        if forked := self._fork_from_copy(environments, streams):
            self.problem = None
            return forked
        answer = self._fork_from(self._original, environments, streams)
        if isinstance(answer, EnvironmentDiffers):
            for name in answer.variables:
                if len({environment.get(name) for environment in environments.values()}) > 1:
                    self.end(f"an import reads {name}, which differs between ranks")
                    return None
            first = next(iter(environments.values()))
            common = {name: first[name] for name in answer.variables}
            self.end()
            self.environment = {**self.environment, **common}
            self.start()
            self.prepare()
            answer = self._fork_from(self._original, environments, streams)
        if isinstance(answer, Forked):
            return answer
        if self._original is not None:
            self.end((answer.problem if isinstance(answer, Readiness) else None) or ENDED)
            orphans.kill(self.mark)  # or workers forked without an answer would meet the next ones
        return None

    def _fork_from(
        self, process: ForkingProcess | None, environments: Environments, streams: Streams
    ) -> Forked | Message | None:
        """Forks workers from the server or its copy; returns its answer if it has forked none."""
        if process is None:
            return None
        answer = process.fork(self.store, environments, streams, self.wakeup)
        if not isinstance(answer, WorkersForked):
            return answer
        self.store_host = answer.store_host
        return Forked(dict(zip(environments, answer.pids, strict=True)))

    def _fork_from_copy(self, environments: Environments, streams: Streams) -> Forked | None:
        """Forks workers from the copy; returns None if it can't be used."""
        if self._copy is not None and self.state is State.COPY_IMPORTING:
            match self._copy.answer(COPY_IMPORT_SECONDS, self.wakeup):
                case Readiness(problem=None):
                    self._enter(State.COPY_READY)
                case Readiness(problem=str(problem)):
                    self._refuse_copy(problem)
                case _:
                    self._refuse_copy("it takes too long")
        answer = self._fork_from(self._copy, environments, streams)
        if isinstance(answer, Forked):
            return answer
        if self._copy is not None:
            self._refuse_copy("its environment differs")
        return None

    def _refuse_copy(self, reason: str) -> None:
        """Ends the copy and any workers that it has forked without an answer."""
        assert self._copy is not None
        self._copy.connection.close()
        self._copy, self.copy_refused = None, reason
        self._enter(State.COPY_REFUSED)
        orphans.kill(self.mark, self.pids)

    def extend(self, report: Mapping[str, Any]) -> None:
        """Makes a copy that also imports what a worker reports (`extra_imports.Report`)."""
        if self._original is None or self.state is not State.READY:
            return
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far, os.fdopen(os.memfd_create("report"), "wb") as memory:
            memory.write(json.dumps(report).encode())
            memory.flush()
            order = MakeCopy(self.excluded_package, far.fileno(), memory.fileno())
            answer = None
            with suppress(OSError, StoppedError):
                send(self._original.connection, order)
                answer = self._original.answer(COPY_SECONDS, self.wakeup)
        if isinstance(answer, Copied):
            self._copy = ForkingProcess(answer.pid, near)
            self._enter(State.COPY_IMPORTING)
        else:
            near.close()

    def close_store(self) -> None:
        """Ends the store, whose workers have all ended, and its host."""
        if self.store is not None:
            self.store.close()
        if self.store_host is not None:
            os.kill(self.store_host, signal.SIGKILL)  # it may still be importing torch
            with suppress(ChildProcessError):
                os.waitpid(self.store_host, 0)
        self.store = self.store_host = None

    def exit_code(self, pid: int) -> int:
        """The exit code of a worker or the store's host, -N for signal N; doesn't reap it.

        After a takeover it is the server's child, which knows the code; if the server has ended
        too, it was killed with it.
        """
        with suppress(ChildProcessError):
            return orphans.exit_code(pid)
        if self._original is not None and isinstance(self._process, TakenOver):
            match self._original.ask(AskEnd(pid), COPY_SECONDS):
                case HasEnded(code=code):
                    return code
        return -signal.SIGKILL

    def store_failure(self) -> LaunchError:
        """The error for a store whose host has ended by itself."""
        assert self.store is not None
        assert self.store_host is not None
        return self.store.failure(self.exit_code(self.store_host))

    def leave(self) -> None:
        """Ends the server; leaves a copy for the next launch if that is wanted."""
        if self.warm_key and self._original and self.state is not State.IMPORTING:
            handover.leave(self._original, self.warm_key, self.keep_seconds)
        self.end()

    def end(self, problem: str | None = None) -> None:
        """Ends the server; running workers aren't affected."""
        for process in (self._original, self._copy):
            if process is not None:
                process.connection.close()
        if self._process is not None:
            self._process.kill()  # this ends the copy too
            self._process.communicate()
        self._process = self._original = self._copy = self.copy_refused = None
        self.problem = problem
        self._enter(State.NONE)

    def _enter(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"from {self.state} to {state}"
        self.state = state
