"""Makes a fork of a kept server the server of a later launch, if its imports are still right.

They are if a fresh interpreter would import the same: the files are unchanged, the script begins
with the same imports, and the environment is equal. The server's key covers all else (`warm_key`).
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ...system import children, orphans
from ...workload.script.imports import Step
from . import preload
from .captured_output import CapturedOutput, text_of
from .import_trace import ImportTrace
from .messages import TARGET, Copied, Launch, Message, Readiness, TakeOver, Unshared, receive, send
from .preload import Preloaded

PATIENCE = 10.0
"""Seconds for the launcher's order after it has connected."""
OF_THE_SHELL = frozenset({"_", "OLDPWD", "SHLVL", orphans.VARIABLE})
"""Variables that differ between launches and don't affect imports."""


@dataclass(slots=True)
class Keepable:
    """The server's imports, with all that decides whether they may be used again.

    Attributes:
        trace: dependencies of the imports.
        steps_of: reads the script's first imports anew.
        refused: why it may not be used again; None if it may.
    """

    preloaded: Preloaded
    trace: ImportTrace
    steps_of: Callable[[], Iterable[Step]]
    refused: str | None


def take_over(connection: socket.socket, output: CapturedOutput, kept: Keepable) -> CapturedOutput:
    """Makes this process the server of the launch that has connected, or ends it.

    Returns:
        The output of the imports, this process's own.
    """
    connection.settimeout(PATIENCE)
    try:
        order = receive(connection)
    except OSError:
        os._exit(0)
    if not isinstance(order, TakeOver):
        os._exit(0)
    connection.settimeout(None)
    launch = Launch(**json.loads(text_of(order.launch)))
    os.dup2(order.stdin, 0)
    os.close(order.stdin)
    os.close(order.launch)
    begun = time.time_ns()
    os.setsid()
    os.chdir(launch.folder)
    arguments = sys.argv[1:]
    sys.argv[1:] = launch.command[TARGET + 1 :]
    sys.orig_argv[:] = launch.command
    importlib.invalidate_caches()
    further = iter(kept.steps_of())
    if reason := _difference(launch, kept, arguments, further):
        _refuse(connection, Readiness(reason))
    for name in OF_THE_SHELL:
        os.environ.pop(name, None)
        if name in launch.environment:
            os.environ[name] = launch.environment[name]
    orphans.rewrite_mark(launch.environment[orphans.VARIABLE])
    kept.preloaded.environment = dict(launch.environment)
    kept.preloaded.per_rank = launch.per_rank_variables
    children.adopt_descendants(wanted=True)
    output = output.separate()
    send(connection, Copied(os.getpid()))
    try:
        kept.preloaded.run(kept.trace.during(further))
    except preload.UnsharedImport as unshared:
        _refuse(connection, Unshared(unshared.package, unshared.reason))
    kept.refused = kept.trace.settle(begun)
    send(connection, Readiness(preload.prepare_to_fork()))
    return output


def _difference(
    launch: Launch, kept: Keepable, arguments: Sequence[str], further: Iterator[Step]
) -> str | None:
    """Why the imports may not be used for a launch; None if they may.

    The `arguments` are those that were imported for. Takes the steps that were done from `further`,
    the steps of the launch's script.
    """
    before, now = kept.preloaded.environment, launch.environment
    for name in sorted((before.keys() | now.keys()) - OF_THE_SHELL):
        if before.get(name) != now.get(name):
            return f"{name} differs"
    for name in sorted(kept.preloaded.reads.keys() & launch.per_rank_variables):
        return f"an import reads {name}, {preload.PER_RANK}"
    if kept.trace.reads_arguments and arguments != sys.argv[1:]:
        return "an import reads the arguments, which differ"
    if changed := kept.trace.changed():
        return changed
    if any(next(further, None) != step for step in kept.preloaded.steps):
        return "the script's first imports have changed"
    return None


def _refuse(connection: socket.socket, message: Message) -> NoReturn:
    send(connection, message)
    os._exit(0)
