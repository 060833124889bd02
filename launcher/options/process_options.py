"""Options for starting workers."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ..core.errors import ExitCode, LaunchError
from ..core.hardware import VISIBLE, Hardware
from ..core.nearest import near
from ..core.quantities import count_of
from ..core.request import HangTimes, LaunchRequest, StopTimes
from ..system import private_files
from ..system.signals import ENDING, REPORT
from . import core_binding, table

PIDS = Path("/tmp")  # where deepspeed writes them: deepspeed/launcher/launch.py


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    group = parser.add_argument_group("workers")
    methods = ("spawn", "fork", "forkserver")
    table.add(group, "start_method", choices=methods, default="forkserver", metavar=None)
    group.add_argument(
        *("--keep-warm", "--keep_warm"),
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="keep the script's imports loaded for this long after the launch, so that the next "
        "launch starts faster if no imported file has changed (default: 0)",
    )
    table.add(group, "max_restarts", type=_count, default=0)
    table.add(group, "monitor_interval", type=_seconds)
    table.add(group, "event_log_handler", type=_event_log)
    table.add(group, "role", default="default")
    table.add(group, "no_python")
    table.add(group, "run_path")
    table.add(group, "no_local_rank")
    table.add(group, "virtual_local_rank")
    table.add(group, "signals_to_handle", type=_signals, default=())
    table.add(group, "numa_binding", choices=core_binding.BINDINGS, metavar=None)
    table.add(group, "bind_cores_to_rank")
    table.add(group, "bind_core_list", type=core_binding.core_list)
    table.add(group, "save_pid")
    times = StopTimes()
    for name, default, text in (
        ("leave", times.leave, "time between a worker's failure and its SIGTERM"),
        ("interrupt", times.interrupt, "time between SIGINT and SIGTERM after Ctrl-C"),
    ):
        group.add_argument(
            *(f"--{name}-timeout", f"--{name}_timeout"),
            type=_seconds,
            default=default,
            metavar="SECONDS",
            help=f"{text} (default: {default:g})",
        )
    table.add(group, "shutdown_timeout", type=_seconds)
    hangs = HangTimes()
    group.add_argument(
        *("--hang-report", "--hang_report"),
        type=_seconds,
        default=hangs.report,
        metavar="SECONDS",
        help="report each rank's position after at least this long without progress "
        "(default: %(default)g; 0: never)",
    )
    group.add_argument(
        *("--hang-timeout", "--hang_timeout"),
        type=_seconds,
        metavar="SECONDS",
        help="end the run after this long without progress (default: only if waiting "
        "provably can't help)",
    )


def stop_times(options: argparse.Namespace, environment: Mapping[str, str]) -> StopTimes:
    """Times between consecutive signals to workers.

    Raises:
        LaunchError: torch elastic's variable isn't a number of seconds.
    """
    terminate, variable = options.shutdown_timeout, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    if terminate is None and environment.get(variable):
        try:
            terminate = _seconds(environment[variable])
        except argparse.ArgumentTypeError as error:
            problem = f"{variable}={environment[variable]}: a number of seconds is needed"
            raise LaunchError(problem) from error
    if terminate is None:
        terminate = StopTimes().terminate
    return StopTimes(options.leave_timeout, options.interrupt_timeout, terminate)


def hang_times(options: argparse.Namespace) -> HangTimes:
    """Times to wait for workers without progress.

    Raises:
        LaunchError: the two times contradict each other.
    """
    if options.hang_timeout is not None and options.hang_timeout < options.hang_report:
        problem = (
            f"--hang-timeout {options.hang_timeout:g} is shorter than "
            f"--hang-report {options.hang_report:g}"
        )
        hint = "the ranks are asked where they stand before a run is ended: shorten both"
        raise LaunchError(problem, hint)
    if options.hang_timeout is not None and not options.hang_report:
        problem = "--hang-report 0 switches off what --hang-timeout needs"
        raise LaunchError(problem, "give --hang-report a time")
    return HangTimes(options.hang_report, options.hang_timeout)


def applied(
    request: LaunchRequest,
    options: argparse.Namespace,
    environment: Mapping[str, str],
    gpus: int,
    *,
    is_launch: bool,
    elsewhere: Hardware | None = None,
) -> LaunchRequest:
    """The request with the options for workers applied.

    Args:
        request: the request without them.
        options: of the command line.
        environment: the launcher's environment.
        gpus: the number of GPUs on this host.
        is_launch: whether to launch, not only plan, so requirements must be met here.
        elsewhere: hardware of another host to plan for.

    Raises:
        LaunchError: options contradict each other, a time is invalid, or a requirement is missing.
    """
    is_program = options.no_python and not options.run_path
    _refuse_contradictions(options, is_program=is_program)
    if is_launch and is_program and shutil.which(request.script) is None:
        problem = f"--no-python: there is no program `{request.script}`"
        raise LaunchError(problem, "it must be executable, on PATH or with a path")
    if is_launch and options.numa_binding:
        core_binding.refuse_numa(options.numa_binding, gpus)
    interpreter = environment.get("PYTHON_EXEC", "")
    if is_launch and interpreter:
        _refuse_interpreter(interpreter)
    bound = core_binding.cores_of(options, request.nproc, environment, elsewhere)
    worker_options = request.worker_options
    request = replace(
        request,
        is_program=is_program,
        limits=replace(
            request.limits,
            max_restarts=options.max_restarts,
            allow_restart=request.limits.allow_restart or options.max_restarts > 0,
        ),
        worker_options=replace(
            worker_options,
            stop_times=stop_times(options, environment),
            hang_times=hang_times(options),
            keep_warm=options.keep_warm,
            interpreter=interpreter,
            role=options.role,
            own_device=options.virtual_local_rank,
            numa_binding=options.numa_binding or "",
            cores=bound,
            forwarded=tuple(dict.fromkeys((*worker_options.forwarded, *options.signals_to_handle))),
            start_method=_start_method(options, interpreter, is_fresh=bool(bound) or is_program),
        ),
    )
    if options.virtual_local_rank and elsewhere is None:
        _refuse_too_few_devices(environment, request.nproc)
    return request


def _start_method(
    options: argparse.Namespace, interpreter: str, *, is_fresh: bool
) -> Literal["spawn", "forkserver"]:
    """The workers' start method: `spawn` for settings a running process can't change.

    These are its program, its threads' cores, and torch's binding by numactl.
    """
    if options.start_method == "spawn" or interpreter or is_fresh or options.numa_binding:
        return "spawn"
    return "forkserver"


def _refuse_contradictions(options: argparse.Namespace, *, is_program: bool) -> None:
    binds = options.bind_cores_to_rank
    for option, other, both in (
        ("--no-python", "--module", is_program and options.module),
        ("--run-path", "--module", options.run_path and options.module),
        ("--no-python", "--bind_cores_to_rank", is_program and binds),
        ("--numa-binding", "--bind_cores_to_rank", options.numa_binding and binds),
    ):
        if both:
            raise LaunchError(f"{option} and {other} can't go together", "give one")


def _refuse_interpreter(path: str) -> None:
    """Refuses a Python that can't run or lacks safe-launch."""
    search = "import importlib.util, sys; sys.exit(importlib.util.find_spec('safe_launch') is None)"
    try:
        done = subprocess.run([path, "-c", search], check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise LaunchError.because(error, f"PYTHON_EXEC={path} can't be executed") from error
    if done.returncode:
        problem = f"PYTHON_EXEC={path}: safe-launch isn't installed for it"
        raise LaunchError(problem, "install it there, or unset PYTHON_EXEC")


def _refuse_too_few_devices(environment: Mapping[str, str], nproc: int) -> None:
    for variable in VISIBLE:
        value = environment.get(variable)
        if value is not None and len(value.split(",")) < nproc:
            problem = f"--virtual-local-rank: {count_of(nproc, 'worker')}, but {variable}={value}"
            raise LaunchError(problem, "each worker needs one device")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"a whole number is needed: {text}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number of seconds is needed, not {text!r}") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"a time can't be negative: {text}")
    return value


def _event_log(text: str) -> str:
    if text != "null":
        problem = f"--event-log-handler {text}: there is no other handler than null"
        raise LaunchError(problem, "the run directory records the events")
    return text


def _signals(text: str) -> tuple[int, ...]:
    """Numbers of the named signals, except those handled by the launcher itself.

    Raises:
        LaunchError: a name is unknown, or the signal can't be caught.
    """
    numbers = []
    for name in (part.strip() for part in text.split(",")):
        try:
            number = signal.Signals[name]
        except KeyError:
            problem = f"--signals-to-handle: there is no signal {name!r}"
            names = [number.name for number in signal.Signals]
            raise LaunchError(problem, near(name, names)) from None
        if number in (signal.SIGKILL, signal.SIGSTOP):
            raise LaunchError(f"--signals-to-handle: {name} can't be caught by any process")
        if number not in (*ENDING, REPORT):
            numbers.append(int(number))
    return tuple(numbers)


@contextmanager
def pid_file(*, is_wanted: bool) -> Iterator[None]:
    """Creates deepspeed's file with the launcher's process id within the context.

    Raises:
        LaunchError: the file can't be written.
    """
    if not is_wanted:
        yield
        return
    path = PIDS / f"{os.getpid()}.deepspeed"
    try:
        private_files.replace(path, str(os.getpid()).encode())
    except OSError as error:
        problem = f"--save_pid: {path} can't be written"
        raise LaunchError.because(error, problem, code=ExitCode.CANNOT_WRITE) from error
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
