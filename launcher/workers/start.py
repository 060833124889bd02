"""Starts the workers of an attempt with torch elastic, and names their environment."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints import checkpoint
from ..checks import finding
from ..core import preset
from ..core.errors import ExitCode, LaunchError
from ..core.hardware import VISIBLE
from ..core.private_names import AFFINITY_MODE, LOGS_DEST, LOGS_SPECS, NUMA_OPTIONS
from ..core.reasons import hint_of, reason_of
from ..core.request import LaunchRequest
from ..evidence import failed_workers, inquiry, worker_channel
from ..machine import cpu_affinity
from ..nodes.messages import Order
from ..progress import board
from ..system import orphans, run_directory, terminal
from ..system.signals import IGNORED, REPORT, STOPS, SignalWakeup
from ..workload.config_files import edited_deepspeed
from . import local_rank_macro
from .forkserver.client import Forked, Server
from .output import Output
from .warm_key import warm_key

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext


ENTRY = Path(__file__).parents[1] / "worker_entry.py"
ERROR_FILE, SIGNALS = "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"
Variables = dict[str, str]
"""A part of a process's environment."""


@dataclass(frozen=True, slots=True)
class Own:
    """What a node adds to an order for its workers; none of it crosses the network.

    Attributes:
        environment: variables from the devices' profiles.
        resume: what a training resumes from (`checkpoint.VARIABLE`); empty for the script's own
            choice.
        board: where the workers open their node's progress board; empty where there is none.
        sockets: the folder for sockets at which the workers can be asked where they stand; empty
            for none.
    """

    environment: Mapping[str, str]
    resume: str = ""
    board: str = ""
    sockets: str = ""


def environments(
    order: Order,
    own: Own,
    request: LaunchRequest,
    channel: str,
    mark: str,
    folder: Path,
    interface: str | None = None,
) -> dict[int, Variables]:
    """Each worker's variables beyond the launcher's own environment, by local rank.

    Scripts under torch elastic's `record` write their error to TORCHELASTIC_ERROR_FILE.

    The names up to TORCHELASTIC_* are those that torchrun gives
    (`_start_workers` in torch/distributed/elastic/agent/server/local_elastic_agent.py). Where a
    scheduler starts a task for every device, several launchers share a host, and local ranks count
    over all of them, unless each sees only its own device.
    """
    placement, nproc = request.placement, request.nproc
    shares = placement.beside > 1 and placement.shows_all_devices
    local = placement.local * nproc if shares else 0
    common = {
        "WORLD_SIZE": order.world,
        "LOCAL_WORLD_SIZE": nproc * placement.beside if shares else nproc,
        "GROUP_RANK": order.rank,
        "GROUP_WORLD_SIZE": len(order.workers),
        "ROLE_NAME": request.worker_options.role,
        "ROLE_WORLD_SIZE": order.world,
        "MASTER_ADDR": placement.address or "localhost",
        "MASTER_PORT": order.port,
        "TORCHELASTIC_RESTART_COUNT": order.attempt,
        "TORCHELASTIC_MAX_RESTARTS": max(request.limits.max_restarts, order.attempt),
        "TORCHELASTIC_RUN_ID": order.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": True,
        SIGNALS: ",".join(
            signal.Signals(number).name
            for number in (*STOPS, REPORT, *request.worker_options.forwarded)
        ),
        # deepspeed's (deepspeed/launcher/launch.py)
        "CROSS_RANK": order.rank,
        "CROSS_SIZE": len(order.workers),
        orphans.VARIABLE: mark,
        worker_channel.VARIABLE: channel,
        preset.VARIABLE: preset.encode(order.preset),
        preset.OVERRIDES_VARIABLE: preset.encode(order.overrides),
        preset.REPLACED_VARIABLE: preset.encode(order.replaced),
        checkpoint.VARIABLE: own.resume,
        board.VARIABLE: own.board,
        inquiry.VARIABLE: own.sockets,
        inquiry.DUMPS_VARIABLE: inquiry.dumps_prefix(folder),
        finding.VARIABLE: finding.active(request.worker_options.checks),
        edited_deepspeed.VARIABLE: folder.absolute() / "edited",
        **({failed_workers.VARIABLE: ""} if failed_workers.VARIABLE in os.environ else {}),
        **lasting(request, own.environment),
    }
    if interface is not None:
        common |= _defaults({"GLOO_SOCKET_IFNAME": interface})
    return {
        place: {
            **{name: str(value) for name, value in common.items()},
            "RANK": str(rank),
            "LOCAL_RANK": str(local + place),
            "ROLE_RANK": str(rank),
            ERROR_FILE: str(run_directory.error_file(folder, rank)),
            **_per_worker(request, place, local + place),
        }
        for place, rank in enumerate(order.ranks)
    }


def _per_worker(request: LaunchRequest, place: int, local: int) -> Variables:
    """A worker's own variables: its one visible device, its cores.

    Args:
        request: this node's launch.
        place: the worker's place among this launcher's workers.
        local: its local rank.
    """
    result: Variables = {}
    if request.worker_options.own_device:
        # As `_set_local_rank_env` in torch's local_elastic_agent.py, and the same for Ascend's.
        for name in VISIBLE:
            listed = os.environ.get(name)
            result[name] = str(local) if listed is None else listed.split(",")[local].strip()
        result |= {"LOCAL_RANK": "0", local_rank_macro.VARIABLE: str(local)}
    if request.worker_options.cores:
        cores = request.worker_options.cores[place]
        result[cpu_affinity.VARIABLE] = ",".join(map(str, cores))
        result["OMP_NUM_THREADS"] = str(len(cores))
    return result


def lasting(request: LaunchRequest, environment: Mapping[str, str]) -> Variables:
    """The variables that are the same in every attempt.

    Args:
        request: this node's launch.
        environment: variables from the accelerator's profile.
    """
    threads = {"OMP_NUM_THREADS": "1"} if request.nproc > 1 else {}
    return _defaults({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **threads, **environment})


def server(request: LaunchRequest, environment: Mapping[str, str], mark: str) -> Server:
    """The fork server of this launcher; started, unless the workers are to be fresh processes.

    Args:
        request: this node's launch.
        environment: variables from the accelerator's profile.
        mark: what identifies the processes of this launcher.
    """
    own: tuple[str, ...] = ()
    if request.nproc > 1:
        own = (
            "RANK",
            "ROLE_RANK",
            ERROR_FILE,
            *(() if request.worker_options.own_device else ("LOCAL_RANK",)),
        )
    words, seconds = command(request), request.worker_options.keep_warm
    key = warm_key(request, words) if seconds else ""
    result = Server(
        mark, words, lasting(request, environment), own, keep_seconds=seconds, warm_key=key
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


def _defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that the user has not set.

    PYTORCH_ALLOC_CONF, the newer name for every device, excludes the device's own: torch_npu
    refuses both.
    """
    return {
        name: value
        for name, value in variables.items()
        if name not in os.environ
        and not (name.endswith("_ALLOC_CONF") and "PYTORCH_ALLOC_CONF" in os.environ)
    }


def start(
    request: LaunchRequest, first: int, envs: dict[int, Variables], pipes: Output, server: Server
) -> PContext | Forked:
    """Starts this node's workers, each leading a session of its own.

    Args:
        request: this node's launch.
        first: rank of the first of them.
        envs: their environments by local rank.
        pipes: the pipes for their output.
        server: the fork server; where it can't fork them, they are fresh processes.

    Raises:
        StoppedError: a signal has told the launcher to stop.
    """
    streams = {
        place: tuple(stream.writer for stream in pipes.streams if stream.rank == first + place)
        for place in envs
    }
    forked = server.fork(envs, streams)
    if forked is not None:
        return forked
    if server.store is not None:
        server.store.host()
    server.wakeup.raise_if_stopped()
    return _spawned(request, first, envs, pipes, server.wakeup)


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
            f"{error.sigval.name}: what was started has {times.terminate:g} s to end; "
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

    specs, destinations = LOGS_SPECS.found(), LOGS_DEST.found()

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
    own = {place: local_rank_macro.filled(words, env) for place, env in envs.items()}
    os.environ[SIGNALS] = envs[0][SIGNALS]  # elastic's handlers here, while it starts them
    try:
        return start_processes(
            name="worker",
            entrypoint=entry,
            args={place: tuple(own[place] if request.is_program else words) for place in envs},
            envs=envs,
            logs_specs=Pipes(),
            **_binding(request),
        )
    except SignalException:
        raise
    except Exception as error:
        orphans.kill(envs[0][orphans.VARIABLE])  # some may have been started by then
        if request.worker_options.numa_binding:
            asked = f"--numa-binding {request.worker_options.numa_binding}"
            problem = f"{asked}: torch can't do it here: {error}"
            raise LaunchError(ExitCode.USAGE, problem) from error
        if not request.is_program or not isinstance(error, OSError):
            raise
        problem = f"{request.script} can't be executed: {reason_of(error)}"
        raise LaunchError(ExitCode.USAGE, problem, hint_of(error)) from error


def _binding(request: LaunchRequest) -> dict[str, Any]:
    """Arguments for torch to bind workers near their GPUs, where that is requested."""
    if not request.worker_options.numa_binding:
        return {}
    mode = AFFINITY_MODE.found()(request.worker_options.numa_binding)
    return {"numa_options": NUMA_OPTIONS.found()(mode)}
