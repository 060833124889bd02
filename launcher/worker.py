"""The entry of a worker: runs the script as the interpreter would, and reports its failure."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # `-m` put the working directory there; the script decides what belongs there

import builtins
import importlib.util
import os
import pkgutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .evidence import from_exception, observations
from .evidence.worker_channel import VARIABLE, Sender
from .guards import install
from .machine import cpu_affinity
from .workers import local_rank_macro
from .workers.forkserver.messages import WARM

STOPPING = {signal.SIGTERM, signal.SIGINT}
BLOCKED_AT_START = {*STOPPING, signal.SIGHUP, signal.SIGQUIT}
"""Signals that the launcher holds back while it starts workers, which inherit that."""


def main(arguments: list[str]) -> None:
    """Runs `script PATH ARGS...` or `module NAME ARGS...` as `__main__`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_AT_START)
    kind, target, *rest = arguments
    install.install()
    sys.path.insert(0, str(Path.cwd() if kind == "module" else Path(target).resolve().parent))
    warmth = None
    if WARM in os.environ:
        from .workers.forkserver import extra_imports, restart_in_place, server
        from .workload.script.imports import module_steps, steps

        warmth = server.serve(module_steps(target) if kind == "module" else steps(target))
    if "SLURM_STEP_ID" in os.environ:
        # Without cgroups Slurm signals every process of a step: it would end what has no handler.
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    if cpu_affinity.VARIABLE in os.environ:
        os.sched_setaffinity(0, map(int, os.environ[cpu_affinity.VARIABLE].split(",")))
    rest = local_rank_macro.filled(rest, os.environ)
    rank = int(os.environ["RANK"])
    sender = Sender(os.environ.get(VARIABLE), rank)
    observations.sender = sender
    if warmth is not None:
        fork = extra_imports.Fork(warmth.preloaded.environment)
        if warmth.is_first:
            fork.watch()
            observations.report_imports = lambda: asdict(fork.report(os.environ))
        restart_in_place.watch(
            warmth.preloaded, lambda name: sender.send("afresh", {"variable": name})
        )
    code = 0
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
        report_failure(error, rank, code, sender)
        show(error)
    if code == 0:
        sender.send("finished", {})
    sys.exit(code)


def report_failure(error: BaseException, rank: int, code: int, sender: Sender) -> None:
    """Sends the record of a failure; a stop that is ordered meanwhile has to wait.

    Making the record takes time, in which other ranks fail in turn. It is announced at once, so
    that the first to fail is known as such, whatever becomes of its record.
    """
    first = from_exception.announcement(error, rank, time.monotonic(), code)
    with _stops_wait():
        sender.send("failing", {"record": first})
        sender.send("failed", {"record": asdict(from_exception.record(error, first))})


@contextmanager
def _stops_wait() -> Iterator[None]:
    """Holds back the signals that stop the process; they do at the end what they would have done.

    A mask would be the calling thread's alone: any other takes the signal, and the process dies.
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
            # None stands for a handler that isn't Python's, and can't be given back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for waiting in received:
            signal.raise_signal(waiting)


def show(error: BaseException) -> None:
    """Prints the traceback as the interpreter would, through the script's own excepthook."""
    error.__traceback__ = from_exception.trimmed(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)


def exit_code_of(leaving: SystemExit) -> int:
    """The process's exit code, as the interpreter takes it from SystemExit."""
    if leaving.code is None:
        return 0
    return leaving.code & 0xFF if isinstance(leaving.code, int) else 1


def run_script(path: str, arguments: list[str]) -> None:
    """Runs a file, or the `__main__.py` of a folder or zip, as `python path arguments...` does."""
    sys.orig_argv[:] = [sys.executable, "-u", path, *arguments]
    sys.argv[:] = [path, *arguments]
    absolute = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - `./` stays in __file__
    finder: Any = pkgutil.get_importer(absolute)
    if finder is not None:
        sys.path[0] = absolute
        _run_found(finder.find_spec("__main__"), f"can't find '__main__' module in {absolute!r}")
        return
    loader = SourceFileLoader("__main__", absolute)
    known = {"__file__": absolute, "__cached__": None, "__spec__": None, "__loader__": loader}
    module = _become_main(known)
    _execute(compile(Path(absolute).read_bytes(), absolute, "exec", dont_inherit=True), module)


def run_module(name: str, arguments: list[str]) -> None:
    """Runs a module as `python -m name arguments...` does."""
    sys.orig_argv[:] = [sys.executable, "-u", "-m", name, *arguments]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    sys.argv[:] = [name if spec is None else str(spec.origin), *arguments]
    _run_found(spec, f"No module named {name}")


def _run_found(spec: ModuleSpec | None, problem: str) -> None:
    """Runs a module that was found; says the problem where there is none."""
    code = None if spec is None or spec.loader is None else _code_of(spec.loader, spec.name)
    if spec is None or code is None:
        print(f"{sys.executable}: {problem}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    module = _become_main(
        {
            "__file__": spec.origin,
            "__cached__": spec.cached,
            "__spec__": spec,
            "__loader__": spec.loader,
            "__package__": spec.parent,
        }
    )
    _execute(code, module)


def _code_of(loader: Any, name: str) -> CodeType | None:
    get_code = getattr(loader, "get_code", None)
    code = None if get_code is None else get_code(name)
    return code if isinstance(code, CodeType) else None


def _become_main(attributes: dict[str, Any]) -> ModuleType:
    """A fresh `__main__`, in the places where pickle and multiprocessing look for it."""
    module = ModuleType("__main__")
    module.__dict__.update(attributes, __builtins__=builtins)
    sys.modules["__main__"] = module
    if "__mp_main__" in sys.modules:  # multiprocessing's name for it, if imported by now
        sys.modules["__mp_main__"] = module
    return module


def _execute(code: CodeType, module: ModuleType) -> None:
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
