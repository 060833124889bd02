"""Starts the workers of an attempt: forked, or by torch elastic."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import LaunchError
from ..core.private_names import AFFINITY_MODE, LOGS_DEST, LOGS_SPECS, NUMA_OPTIONS
from ..core.request import LaunchRequest
from ..system import orphans, terminal
from ..system.signals import IGNORED, REPORT, STOPS, SignalWakeup
from . import local_rank_macro
from .environment import ERROR_FILE, SIGNALS, NodeContext, Variables, lasting
from .forkserver.client import Server
from .forkserver.forking_process import Forked
from .forkserver.handover import warm_key
from .output import Output

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext


ENTRY = Path(__file__).parents[1] / "worker_entry.py"


def server(request: LaunchRequest, environment: Mapping[str, str], mark: str) -> Server:
    """The fork server of this launcher; started, unless the workers are to be fresh processes."""
    per_rank = ["RANK", "ROLE_RANK", ERROR_FILE] if request.nproc > 1 else []
    if per_rank and not request.worker_options.own_device:
        per_rank.append("LOCAL_RANK")
    line, seconds = command(request), request.worker_options.keep_warm
    key = warm_key(request, line) if seconds else ""
    result = Server(
        mark, line, lasting(request, environment), per_rank, keep_seconds=seconds, warm_key=key
    )
    if request.worker_options.start_method == "forkserver" and not request.is_program:
        result.begin()
    return result


def command(request: LaunchRequest) -> tuple[str, ...]:
    """A worker's command line; `${local_rank}` in it isn't filled in yet."""
    if request.is_program:
        return (request.script, *request.arguments)
    kind = "module" if request.is_module else "script"
    worker = ("-u", str(ENTRY), kind, request.script)
    return (request.worker_options.interpreter or sys.executable, *worker, *request.arguments)


def start(
    node: NodeContext, first: int, envs: dict[int, Variables], pipes: Output
) -> PContext | Forked:
    """Starts this node's workers, each leading its own session.

    Raises:
        StoppedError: a signal has told the launcher to stop.
    """
    server = node.server
    streams = {
        place: tuple(stream.writer for stream in pipes.streams if stream.rank == first + place)
        for place in envs
    }
    if (forked := server.fork(envs, streams)) is not None:
        return forked
    if server.store is not None:
        server.store.host()
    server.wakeup.raise_if_stopped()
    return _spawned(node.request, first, envs, pipes, server.wakeup)


def _spawned(
    request: LaunchRequest,
    first: int,
    envs: dict[int, Variables],
    pipes: Output,
    wakeup: SignalWakeup,
) -> PContext:
    """Starts workers with torch elastic, whose own handlers raise on a signal while it does.

    So signals wait meanwhile, which workers inherit and undo. A program wouldn't, and would never
    see a SIGTERM: there, what a signal raises is caught.

    Raises:
        StoppedError: a signal has told the launcher to stop.
        LaunchError: the program can't be executed, or torch can't bind them.
    """
    from torch.distributed.elastic.multiprocessing import SignalException

    waiting = () if request.is_program else (*STOPS, REPORT)
    signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    try:
        context = _spawn(request, first, envs, pipes)
        wakeup.install()
    except SignalException as error:
        wakeup.install()
        # Those that have been started by then: they may save.
        mark, times = envs[0][orphans.VARIABLE], request.worker_options.stop_times
        terminal.say(
            f"{error.sigval.name}: the started processes have {times.terminate:g} s to end; "
            "Ctrl-C kills it at once"
        )
        orphans.stop(mark, error.sigval, times.terminate, lambda: signal.SIGINT in wakeup.arrived)
        os.kill(os.getpid(), error.sigval)
        wakeup.raise_if_stopped()
        raise
    finally:
        for number in IGNORED:  # older versions of elastic handle every signal
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waiting)
    return context


def _spawn(
    request: LaunchRequest, first: int, envs: dict[int, Variables], pipes: Output
) -> PContext:
    """Starts workers as fresh processes with torch elastic.

    Raises:
        LaunchError: the program can't be executed, torch can't bind them, or has no such start.
        SignalException: a signal has come meanwhile.
    """
    from torch.distributed.elastic.multiprocessing import SignalException, start_processes

    specs, destinations = LOGS_SPECS.imported(), LOGS_DEST.imported()

    class Pipes(specs):  # type: ignore[misc, valid-type]  # torch is typed as Any
        """Sends each worker's stdout and stderr into our pipes instead of into files."""

        def reify(self, envs: dict[int, Variables]) -> Any:
            paths: dict[int, dict[int, str]] = {1: {}, 2: {}}
            for stream in pipes.streams:
                paths[stream.console][stream.rank - first] = stream.path
            errors = {place: env[ERROR_FILE] for place, env in envs.items()}
            return destinations(stdouts=paths[1], stderrs=paths[2], error_files=errors)

        @property
        def root_log_dir(self) -> str:
            return str(pipes.folder)

    # Elastic would log failures as well, which the session reports.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    entry, *words = command(request)
    # A worker fills in its own arguments; a program can't.
    filled = {place: local_rank_macro.filled(words, env) for place, env in envs.items()}
    os.environ[SIGNALS] = envs[0][SIGNALS]  # elastic's handlers here, while it starts them
    try:
        return start_processes(
            name="worker",
            entrypoint=entry,
            args={place: tuple(filled[place] if request.is_program else words) for place in envs},
            envs=envs,
            logs_specs=Pipes(),
            **_binding(request),
        )
    except SignalException:
        raise
    except Exception as error:
        orphans.kill(envs[0][orphans.VARIABLE])  # some may have been started by then
        if request.worker_options.numa_binding:
            option = f"--numa-binding {request.worker_options.numa_binding}"
            raise LaunchError(f"{option}: torch can't do it here: {error}") from error
        if not request.is_program or not isinstance(error, OSError):
            raise
        raise LaunchError.because(error, f"{request.script} can't be executed") from error


def _binding(request: LaunchRequest) -> dict[str, Any]:
    """Arguments for torch to bind workers near their GPUs, if that is requested."""
    if not request.worker_options.numa_binding:
        return {}
    mode = AFFINITY_MODE.imported()(request.worker_options.numa_binding)
    return {"numa_options": NUMA_OPTIONS.imported()(mode)}
