"""The entry of a worker: runs the script as the interpreter would, and reports its failure."""

import atexit
import builtins
import gc
import importlib.util
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .core.hardware import CORES
from .evidence import from_exception
from .evidence.observations import observations
from .evidence.worker_channel import VARIABLE, Sender
from .evidence.worker_messages import (
    Exiting,
    Failure,
    FailureBegun,
    Finalizing,
    Finished,
    Reexecution,
)
from .guards import answering, install, settling
from .progress import board, slot
from .progress.board import Phase
from .system import orphans, regular_files
from .system.signals import REPORT, STOPS
from .workers import local_rank_macro
from .workers.forkserver.messages import WARM

STOPPING = {signal.SIGTERM, signal.SIGINT}


def main(arguments: list[str]) -> None:
    """Runs `script PATH ARGS...` or `module NAME ARGS...` as `__main__`."""
    kind, target, *rest = arguments
    make_main(target if kind == "script" else None)
    install.install()
    is_warm, warmth = WARM in os.environ, None
    if is_warm:
        from .workers.forkserver import extra_imports, restart_in_place, server
        from .workload.script.imports import module_steps, steps
    # From here on modules beside the script come first, as under the interpreter.
    sys.path.insert(0, str(Path.cwd() if kind == "module" else Path(target).resolve().parent))
    if is_warm:
        find = module_steps if kind == "module" else steps
        sys.argv[:] = ["-m" if kind == "module" else target, *rest]  # as imports would see it
        warmth = server.serve(lambda: find(target))
        rest = sys.argv[1:]  # those of a later launch, if this process serves one
    else:
        orphans.die_with(os.getppid(), signal.SIGKILL)
    try:
        # They are blocked where workers are started or forked, which inherit the mask.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOPS, REPORT))
        if "SLURM_STEP_ID" in os.environ:
            # Without cgroups Slurm signals every process of a step: by default that ends it.
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, signal.SIG_IGN)
        if CORES in os.environ:
            os.sched_setaffinity(0, map(int, os.environ[CORES].split(",")))
        rest = local_rank_macro.filled(rest, os.environ)
        rank = int(os.environ["RANK"])
        with _stops_wait():
            sender = Sender(os.environ.get(VARIABLE), rank)
            observations.report_to(sender.send, partial(sender.ask, seconds=settling.PATIENCE))
            observations.show_on(slot.slot_of(os.environ.get(board.VARIABLE), rank))
            answering.begin(rank)
            if warmth is not None:
                fork = extra_imports.Fork(warmth.preloaded.environment)
                if warmth.is_first:
                    fork.watch()
                    observations.report_imports_by(lambda: asdict(fork.report(os.environ)))
                restart_in_place.watch(
                    warmth.preloaded, lambda name: sender.send(Reexecution(name))
                )
        code = run(kind, target, rest, rank, sender)
    except KeyboardInterrupt as interrupt:  # before the script, or during the report of its end
        interrupt.__context__ = None
        show(interrupt)
        code = 128 + signal.SIGINT
    finally:
        # What the server froze for its forks is taken apart at the end, as in a fresh process:
        # nanobind, in which triton's module is written, reports what is left.
        gc.unfreeze()
    sys.exit(code)


def run(kind: str, target: str, rest: list[str], rank: int, sender: Sender) -> int:
    """Runs the script and reports its end to the launcher; returns its exit code.

    Raises:
        SystemExit: the script's own, with a code other than 0.
        KeyboardInterrupt: Ctrl-C after the script's end.
    """
    code = 0
    observations.progress.enter(Phase.LOADING)
    try:
        if kind == "module":
            run_module(target, rest)
        else:
            run_script(target, rest)
    except SystemExit as leaving:
        code = exit_code_of(leaving)
        if code:
            report_failure(leaving, rank, code, sender)
            raise
    except KeyboardInterrupt as interrupt:
        show(interrupt)
        code = 128 + signal.SIGINT
    except BaseException as error:
        code = 1
        try:
            report_failure(error, rank, code, sender)
        finally:  # also if Ctrl-C has come meanwhile
            show(error)
    observations.end()
    if code == 0:
        sender.send(Finished())
        atexit.register(sender.send, Exiting())  # the first to run, once all threads are joined
        # Among the first that the interpreter deletes after its exit handlers, none of which is
        # ours then (finalize_modules_delete_special in CPython's pylifecycle.c).
        vars(sys)["__interactivehook__"] = _Last(sender)
    return code


class _Last:
    """Reports that the exit handlers have run, by its own end."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __del__(self) -> None:
        with suppress(Exception):
            self._sender.send(Finalizing())


def report_failure(error: BaseException, rank: int, code: int, sender: Sender) -> None:
    """Sends the record of a failure; a stop that arrives meanwhile has to wait.

    Making the record takes time, in which other ranks fail as a result. The failure is announced at
    once, so that the first rank to fail is known, even if its record is never sent.
    """
    cause = from_exception.cause_of(error)
    first = from_exception.first_record(cause, rank, time.monotonic(), code)
    with _stops_wait():
        sender.send(FailureBegun(first))
        sender.send(Failure(from_exception.full_record(cause, first, observations)))


@contextmanager
def _stops_wait() -> Iterator[None]:
    """Defers the signals that stop the process to the end of the block.

    A mask would apply to this thread alone: another thread would get the signal.
    """
    received: list[int] = []
    earlier = {
        number: signal.signal(number, lambda number, _frame: received.append(number))
        for number in STOPPING
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            # None means a handler that isn't Python's, which can't be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for waiting in received:
            signal.raise_signal(waiting)


def show(error: BaseException) -> None:
    """Prints the traceback as the interpreter would, through the script's own excepthook."""
    error.__traceback__ = from_exception.trimmed(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)


def exit_code_of(leaving: SystemExit) -> int:
    """The process's exit code, as the interpreter derives it from SystemExit."""
    if leaving.code is None:
        return 0
    return leaving.code & 0xFF if isinstance(leaving.code, int) else 1


def run_script(path: str, arguments: list[str]) -> None:
    """Runs a file, or the `__main__.py` of a folder or zip, as `python path arguments...` does."""
    sys.orig_argv[:] = [sys.executable, "-u", path, *arguments]
    sys.argv[:] = [path, *arguments]
    absolute = _absolute(path)
    finder: Any = pkgutil.get_importer(absolute)
    if finder is not None:
        sys.path[0] = absolute
        _run_spec(finder.find_spec("__main__"), f"can't find '__main__' module in {absolute!r}")
        return
    loader = SourceFileLoader("__main__", absolute)
    known = {"__file__": absolute, "__cached__": None, "__spec__": None, "__loader__": loader}
    namespace = _become_main(known)
    source = regular_files.read(Path(absolute))
    exec(compile(source, absolute, "exec", dont_inherit=True), namespace)


def run_module(name: str, arguments: list[str]) -> None:
    """Runs a module as `python -m name arguments...` does."""
    sys.orig_argv[:] = [sys.executable, "-u", "-m", name, *arguments]
    sys.argv[:] = ["-m", *arguments]  # as its parent packages see it
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    sys.argv[:] = [name if spec is None else str(spec.origin), *arguments]
    _run_spec(spec, f"No module named {name}")


def _run_spec(spec: ModuleSpec | None, problem: str) -> None:
    """Runs a module that was found; prints the problem if there is none."""
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    code = get_code(spec.name) if spec is not None and get_code is not None else None
    if spec is None or not isinstance(code, CodeType):
        print(f"{sys.executable}: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    namespace = _become_main(
        {
            "__file__": spec.origin,
            "__cached__": spec.cached,
            "__spec__": spec,
            "__loader__": spec.loader,
            "__package__": spec.parent,
        }
    )
    exec(code, namespace)


def make_main(script: str | None) -> None:
    """Makes a fresh `__main__` for the script or module; imports may keep it (dill's)."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    if script is not None:
        module.__file__ = _absolute(script)


def _absolute(path: str) -> str:
    """A script's `__file__`, as the interpreter makes it: `./` stays."""
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - a Path would drop it


def _become_main(attributes: dict[str, Any]) -> dict[str, Any]:
    """Fills `__main__`, where pickle and multiprocessing look for it; returns its namespace."""
    module = sys.modules["__main__"]
    module.__dict__.update(attributes, __builtins__=builtins)
    if "__mp_main__" in sys.modules:  # multiprocessing's name for it, if already imported
        sys.modules["__mp_main__"] = module
    return module.__dict__
