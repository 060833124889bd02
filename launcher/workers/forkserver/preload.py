"""Does a script's coming imports, and records what they read."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.quantities import count_of
from ...workload.script.imports import Filter, Import, Step, Variable

QUIET = {
    # torch looks for devices without touching CUDA's driver (torch/cuda/__init__.py).
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # Keeps pyarrow's allocator, which `datasets` loads, from starting a thread.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # The same for numpy's BLAS; a worker gets its threads later (`set_blas_threads`).
    "OPENBLAS_NUM_THREADS": "1",
}
"""Variables set while preloading, so that libraries do nothing that a fork can't inherit."""
PER_RANK = "which differs between ranks"
DEVICES = (
    *("/dev/nvidia", "/dev/davinci", "/dev/devmm_svm", "/dev/hisi_hdc"),
    *("/dev/kfd", "/dev/dri/", "/dev/dxg", "/dev/xpu"),
)
"""Prefixes of accelerators' device files; for Ascend, those inside a container."""


class UnsharedImport(BaseException):
    """An import that each worker has to do by itself.

    A BaseException, so that no `except Exception` in the imported module catches it.

    Attributes:
        package: the package.
        reason: why, as a predicate.
    """

    def __init__(self, package: str, reason: str) -> None:
        super().__init__(package, reason)
        self.package, self.reason = package, reason


if TYPE_CHECKING:
    Environment = os._Environ[str]
else:
    Environment = type(os.environ)


class RecordingEnvironment(Environment):
    """`os.environ` while modules are preloaded: it records what they look up.

    Attributes:
        reads: names that were looked up, each with the script's line of the latest such import.
        per_rank: names of variables that differ between ranks.
        line: the script's line of the current import; None if nothing is recorded.
    """

    reads: dict[str, int]
    per_rank: Collection[str]
    line: int | None

    def __getitem__(self, name: str) -> str:
        if self.line is not None:
            self.reads[name] = max(self.line, self.reads.get(name, 0))
            if name in self.per_rank:
                raise UnsharedImport(_reading_package(), f"reads {name}, {PER_RANK}")
        return super().__getitem__(name)

    def items(self) -> Any:
        """All items, unrecorded: an iteration looks up none in particular."""
        return self.copy().items()

    def copy(self) -> dict[str, str]:
        """All variables, unrecorded, as in `items`."""
        line, self.line = self.line, None
        try:
            return super().copy()
        finally:
            self.line = line


def _reading_package() -> str:
    """The package that is looking up a variable."""
    frame = sys._getframe(2)
    # `get` and `in` are methods of os and collections.abc: their caller is meant.
    while frame.f_back and frame.f_globals.get("__name__") in ("os", "collections.abc"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


@dataclass(slots=True)
class Preloaded:
    """The imported modules, and the files that the imports read.

    Attributes:
        per_rank: variables that differ between ranks; no import may look them up.
        environment: the environment before.
        reads: variables that imports have looked up, each with the script's line of the latest
            such import.
        late_reads: variables that were looked up by imports with an unknown place in the script.
        steps: the steps so far.
    """

    per_rank: Collection[str] = ()
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    reads: dict[str, int] = field(default_factory=dict)
    late_reads: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)

    def run(self, steps: Iterable[Step]) -> None:
        """Runs the steps; a failing import is skipped, and will fail in the script.

        Raises:
            UnsharedImport: each worker has to do an import by itself.
        """
        with self._recording() as environment, _without_collector():
            for step in steps:
                self.steps.append(step)
                match step:
                    case Import(module=module, names=names, line=line):
                        environment.line = line
                        _import(module, names)
                        environment.line = None
                    case Variable(name=name, value=value, is_default=is_default):
                        if not (is_default and name in os.environ):
                            os.environ[name] = value
                    case Filter(function=function, arguments=arguments, keywords=keywords):
                        with suppress(Exception):
                            getattr(warnings, function)(*arguments, **keywords)

    @contextmanager
    def _recording(self) -> Iterator[RecordingEnvironment]:
        added = QUIET.keys() - os.environ.keys()
        os.environ.update({name: QUIET[name] for name in added})
        environment: Any = os.environ
        plain = type(environment)
        environment.reads, environment.per_rank = self.reads, self.per_rank
        environment.line = None
        # The object is kept, since other modules may hold it: `from os import environ`.
        environment.__class__ = RecordingEnvironment
        try:
            yield environment
        finally:
            environment.__class__ = plain
            del environment.reads, environment.per_rank, environment.line
            for name in QUIET:
                self.reads.pop(name, None)
            for name in added:
                os.environ.pop(name, None)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Turns off the cycle collector, which takes a quarter of the time of imports."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if not gc.get_threshold()[0]:  # else a module has set its own threshold
            gc.set_threshold(*before)


def _import(module: str, names: tuple[str, ...]) -> None:
    """Does `from module import names`; a lazy module then imports these names.

    SystemExit is suppressed too: some modules raise it if they can't be imported.

    Raises:
        UnsharedImport: it failed and left modules behind, so it would fail differently next time.
    """
    before = set(sys.modules)
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit):
        for name in sys.modules.keys() - before:
            package = name.rpartition(".")[0]
            if package and package not in sys.modules:
                broken = UnsharedImport(package.partition(".")[0], "can't be imported")
                raise broken from None
        return
    for name in names:
        with suppress(Exception, SystemExit):
            if not hasattr(imported, name) and hasattr(imported, "__path__"):
                importlib.import_module(f"{module}.{name}")


def prepare_to_fork() -> str | None:
    """Prepares the process for forking; returns why it can't be forked, or None."""
    release_nvml()
    # The collector never touches frozen objects, so their pages stay shared between workers.
    # A collection before that would take longer than it gains.
    gc.freeze()
    return next(problems(), None)


def problems() -> Iterator[str]:
    """Why no worker may be forked: a thread or device context, or a seed for all of them."""
    if threads := len(list(Path("/proc/self/task").iterdir())) - 1:
        yield f"an import has started {count_of(threads, 'thread')}"
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own descriptor is closed by now
            target = str(link.readlink())
            if target.startswith(DEVICES):
                yield f"an import has opened {target}"
    for name in ("cuda", "npu", "xpu"):
        device = getattr(sys.modules.get("torch"), name, None)
        if device is not None and device.is_initialized():
            yield f"an import has initialized torch.{name}"
    if seeded := next(_seeded(), None):
        yield f"an import has seeded {seeded}'s random numbers"


def _seeded() -> Iterator[str]:
    """The libraries whose generators an import has seeded, instead of the system.

    torch's default seed has 64 bits (c10/core/GeneratorImpl.cpp); numpy's is a sequence, which
    numpy shows since 1.25.
    """
    seed = getattr(sys.modules.get("torch"), "initial_seed", None)
    if seed is not None and seed() < 2**32:
        yield "torch"
    generator = getattr(sys.modules.get("numpy.random"), "get_bit_generator", None)
    if generator is not None and getattr(generator(), "seed_seq", generator) is None:
        yield "numpy"


def set_blas_threads() -> None:
    """Gives OpenBLAS in a worker the threads that it would have started on loading.

    Their number is OPENBLAS_NUM_THREADS, else OMP_NUM_THREADS, else the number of cores (OpenBLAS's
    README, "Setting the number of threads at runtime"). numpy and scipy each bring a copy, whose
    functions have different names.
    """
    if "numpy" not in sys.modules or "OPENBLAS_NUM_THREADS" in os.environ:
        return
    threads = os.environ.get("OMP_NUM_THREADS", "")
    count = int(threads) if threads.isdecimal() else len(os.sched_getaffinity(0))
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for path in (path for path in mapped if "openblas" in path):
        library = ctypes.CDLL(path)
        for head in ("scipy_", ""):
            for tail in ("64_", ""):
                setter = getattr(library, f"{head}openblas_set_num_threads{tail}", None)
                if setter is not None and count > 1:
                    setter(count)


def release_nvml() -> None:
    """Closes NVML, which torch leaves open if it has counted devices with it.

    torch/cuda/__init__.py: `_raw_device_count_nvml` initializes the library and doesn't shut it
    down. It holds the devices open, which would keep every worker from being forked.
    """
    with suppress(OSError, AttributeError):  # not loaded, or not NVML
        library = ctypes.CDLL("libnvidia-ml.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        for _ in range(16):  # each call undoes one initialization; it fails when none is left
            if library.nvmlShutdown():
                return
