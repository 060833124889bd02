"""Reports a worker's position on demand, even if its main thread hangs.

No Python code runs for this during training: a C thread waits for a signal, and the threads of
torch's debug server wait on a socket.
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import os
import resource
import signal
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from ..core.private_names import LOG_LEVEL, WORKER_SERVER, MissingNameError
from ..evidence import inquiry
from ..evidence.observations import observations
from ..system import cgroups, unix_sockets

STACK_SIZE = 512 << 10
"""Bytes of address space for each thread of the debug server; by default it is 8 MiB."""
TASKS = Path("/proc/self/task")
LIBC = ctypes.CDLL(None)
KEPT: list[Any] = []
"""Objects that must not be freed."""
SHARE = 8
"""Inverse of the share of the remaining process limit that threads of all ranks may use."""


def begin(rank: int) -> None:
    """Lets the launcher query this process; called once in the worker process itself."""
    folder = os.environ.get(inquiry.VARIABLE)
    if not folder:
        return
    process = os.getpid()

    def serve(torch: ModuleType) -> None:
        if os.getpid() == process:  # a forked child isn't a rank
            version = tuple(map(int, torch.__version__.split(".")[:2]))
            for begin_it in (_keep_dumps, partial(_serve, torch, folder, rank)):
                with suppress(Exception), observations.going_on():  # the training matters more
                    begin_it(version)

    with suppress(Exception):  # another C library's, another kernel's: the same
        _write_stacks_on_signals()
    wrapt.register_post_import_hook(serve, "torch")


def _write_stacks_on_signals() -> None:
    """Registers faulthandler to write stacks on signals.

    For the stacks of all threads, a dedicated waiting thread takes the signal: in one of the
    script's threads it would interrupt a system call, which some libraries can't handle. Dumping
    the stacks of running threads can crash the process (measured: 1 in 200 dumps under constant
    load), so of a busy process the launcher requests only the main thread's stack.
    """
    numbers = (inquiry.OF_ALL, inquiry.OF_MAIN)
    if any(map(_is_caught, numbers)):
        return
    memory = os.memfd_create(inquiry.stack_of(_waiting_thread()))
    fcntl.fcntl(memory, fcntl.F_SETFL, os.O_APPEND)  # the launcher empties it
    for number in numbers:
        all_threads = number == inquiry.OF_ALL
        faulthandler.register(number, memory, all_threads=all_threads, chain=False)

    def leave_to_script(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        if any(number in (*args, *kwargs.values()) for number in numbers):
            with suppress(OSError):  # without the memory, the launcher sends no signal
                os.close(memory)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(signal, "signal", leave_to_script)
    wrapt.wrap_function_wrapper(faulthandler, "register", leave_to_script)


def _waiting_thread() -> int:
    """Starts a thread that waits forever and takes no other signal; returns its number.

    It runs only C's `sem_wait`, no Python.
    """
    before = {*TASKS.iterdir()}
    with _small_threads(taking={inquiry.OF_ALL}):
        semaphore = ctypes.create_string_buffer(64)  # sem_t has 32 bytes; zeros are a count of 0
        KEPT.append(semaphore)
        thread = ctypes.c_void_p()
        LIBC.pthread_create(ctypes.byref(thread), None, LIBC.sem_wait, semaphore)
    (task,) = {*TASKS.iterdir()} - before
    return int(task.name)


def _is_caught(number: int) -> bool:
    """Whether this process has a handler for a signal, in Python or in C."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return True


def _keep_dumps(version: tuple[int, ...]) -> None:
    """Sends the flight recorder dumps of NCCL and HCCL to the attempt's folder.

    When a collective times out, the process group dumps its recorder to a file whose prefix comes
    from a variable: torch's from 2.8 on (before, it had another name, which newer versions warn
    about), and torch_npu's (`DebugInfoWriter::getWriter` in FlightRecorder.cpp of each).
    """
    prefix = os.environ.get(inquiry.DUMPS_VARIABLE)
    if not prefix:
        return
    known = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if not any(name in os.environ for name in known):
        os.environ[known[version < (2, 8)]] = prefix
    os.environ.setdefault("TORCH_HCCL_DEBUG_INFO_TEMP_FILE", prefix)


def _serve(torch: ModuleType, folder: str, rank: int, version: tuple[int, ...]) -> None:
    """Starts torch's debug server if it has anything to report.

    The server exists since torch 2.4, covers NCCL if built in, and gloo since 2.10.
    Before 2.11 the recorder is off by default (`max_entries_` in FlightRecorder.hpp of each
    version). From 2.8 on, TORCH_FR_BUFFER_SIZE turns it on with 2.11's default size; the variable
    of older versions also makes NCCL's process group write files, and is left to the user.
    """
    is_asked = os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE", "0") != "0"
    if not (version >= (2, 8) or is_asked) or not _has_room():
        return
    if version < (2, 11) and not is_asked:
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    server_of = WORKER_SERVER.imported()
    with (
        unix_sockets.at_folder(folder, inquiry.name_of(rank)) as path,
        _silence(torch),
        _small_threads(),
    ):
        Path(path).unlink(missing_ok=True)  # of this worker, before it was re-executed
        server = server_of(path)
        # Its destructor prints and joins its threads, so keep it until the process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
        _wait_for(path)


def _wait_for(path: str) -> None:
    """Waits for the server's answer, by which all its threads have started.

    Raises:
        OSError: no answer came.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        connection.connect(path)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: rank\r\nConnection: close\r\n\r\n")
        connection.recv(1)


def _has_room() -> bool:
    """Whether the limits of user, host and job allow the server's threads.

    The server starts one thread per processor, and at least 8 (CPPHTTPLIB_THREAD_POOL_COUNT in
    cpp-httplib's httplib.h).
    """
    threads = max(8, os.cpu_count() or 1) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    limits = [resource.getrlimit(resource.RLIMIT_NPROC)[0]]
    for folder in cgroups.folders("pids"):
        with suppress(OSError, ValueError):
            limits.append(int((folder / "pids.max").read_text()))
    return all(limit == resource.RLIM_INFINITY or threads * SHARE <= limit for limit in limits)


@contextmanager
def _silence(torch: ModuleType) -> Iterator[None]:
    """Suppresses warnings from torch's C++ code through its log level (c10/util/Logging.cpp).

    Raises:
        MissingNameError: this build of torch logs in another way.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / LOG_LEVEL.module))
        level = ctypes.c_int.in_dll(library, LOG_LEVEL.path)
    except (OSError, ValueError):
        raise MissingNameError(LOG_LEVEL) from None
    before, level.value = level.value, 3  # fatal errors alone
    try:
        yield
    finally:
        level.value = before


@contextmanager
def _small_threads(taking: Collection[int] = ()) -> Iterator[None]:
    """Gives threads started in this context small stacks, and lets them take only these signals.

    Raises:
        AttributeError: the C library has no such setting.
    """
    attributes = ctypes.create_string_buffer(256)  # pthread_attr_t has 56 to 64 bytes
    size = ctypes.c_size_t()
    LIBC.pthread_getattr_default_np(attributes)
    LIBC.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {*taking})
    try:
        LIBC.pthread_attr_setstacksize(attributes, ctypes.c_size_t(min(size.value, STACK_SIZE)))
        LIBC.pthread_setattr_default_np(attributes)
        yield
    finally:
        LIBC.pthread_attr_setstacksize(attributes, size)
        LIBC.pthread_setattr_default_np(attributes)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
