"""Takes over the server of an earlier launch, and leaves one for the next."""

from __future__ import annotations

import json
import os
import select
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass

from ...system import terminal
from . import warm_servers
from .forking_process import ForkingProcess
from .messages import Copied, Keep, Launch, Readiness, TakeOver
from .warm_servers import WarmServer

TAKE_OVER_SECONDS = 10.0
"""Seconds for a kept server to check whether its imports are still right."""
LEAVE_SECONDS = 5.0
"""Seconds for the server to copy itself."""
STDIN = 0


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A server that isn't this process's child, by its pidfd."""

    descriptor: int

    def kill(self) -> None:
        """Kills it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)

    def communicate(self) -> None:
        """Waits for its end."""
        select.select([self.descriptor], [], [])
        os.close(self.descriptor)


def take_over(key: str, launch: Launch) -> tuple[TakenOver, ForkingProcess] | None:
    """Takes over a server, which from now on is this launch's; None if there is none.

    Those whose imports aren't right any more are ended.
    """
    taken = (_take_over(server, launch) for server in warm_servers.find(key))
    return next(filter(None, taken), None)


def _take_over(server: WarmServer, launch: Launch) -> tuple[TakenOver, ForkingProcess] | None:
    connection = server.connect()
    if connection is None:
        return None
    with os.fdopen(os.memfd_create("launch"), "wb") as memory:
        memory.write(json.dumps(asdict(launch)).encode())
        memory.flush()
        order = TakeOver(STDIN, memory.fileno())
        answer = ForkingProcess(server.pid, connection).ask(order, TAKE_OVER_SECONDS)
    if isinstance(answer, Copied):
        return TakenOver(os.pidfd_open(answer.pid)), ForkingProcess(answer.pid, connection)
    connection.close()
    server.end()
    if isinstance(answer, Readiness):
        terminal.tell(f"the last launch's imports are imported anew: {answer.problem}")
    return None


def leave(process: ForkingProcess, key: str, seconds: float) -> None:
    """Has a server leave a copy for the next launch, in place of earlier ones."""
    folder = warm_servers.folder()
    if folder is None:
        terminal.tell("the imports aren't kept for the next launch: no private folder can be made")
        return
    match process.ask(Keep(key, seconds, os.getsid(0), str(folder)), LEAVE_SECONDS):
        case Copied(pid=pid):
            for server in warm_servers.find(key):
                if server.pid != pid:
                    server.end()
        case Readiness(problem=problem):
            terminal.tell(f"the imports aren't kept for the next launch: {problem}")
