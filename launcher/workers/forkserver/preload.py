"""Imports what a script is going to import, and notes what these imports have read and done."""

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
from typing import Any

from ...workload.script.imports import Filter, Import, Step, Variable

QUIET = {
    # torch asks for devices without touching CUDA's driver (torch/cuda/__init__.py).
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # The allocator that pyarrow carries, and with it `datasets`, starts no thread of its own.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # numpy's BLAS starts none either; a worker gets them later (`set_blas_threads`).
    "OPENBLAS_NUM_THREADS": "1",
}
"""Variables for the time of preloading, with which libraries leave alone what a fork can't have."""
DEVICES = ("/dev/nvidia", "/dev/davinci", "/dev/kfd", "/dev/dri/", "/dev/dxg", "/dev/xpu")
"""How the device files of accelerators begin."""


class OwnError(BaseException):
    """An import looks up what every worker has for itself: it can't be done for all of them.

    Attributes:
        name: the variable.
        reader: the package that looks it up.
    """

    def __init__(self, name: str, reader: str) -> None:
        super().__init__(name, reader)
        self.name, self.reader = name, reader


class Environment(os._Environ[str]):
    """What `os.environ` is while modules are preloaded and until the script has set what it sets.

    Attributes:
        reads: names that were looked up, with the line of the script of the latest import that did.
        own: names that every worker has for itself.
        line: of the import that is under way; None where nothing is to be noted.
    """

    reads: dict[str, int]
    own: Collection[str]
    line: int | None

    def __getitem__(self, name: str) -> str:
        if self.line is not None:
            self.reads[name] = max(self.line, self.reads.get(name, 0))
            if name in self.own:
                raise OwnError(name, _asking())
        return super().__getitem__(name)

    def items(self) -> Any:
        """All, without a note: whoever looks through them all asks for none in particular."""
        return self.copy().items()

    def copy(self) -> dict[str, str]:
        """As `items`."""
        line, self.line = self.line, None
        try:
            return super().copy()
        finally:
            self.line = line


def _asking() -> str:
    """The package whose module looks up a variable."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") in ("os", "collections.abc"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


@dataclass(slots=True)
class Preloaded:
    """What has been imported, and what that has done.

    Attributes:
        reads: environment variables that were looked up meanwhile, with the line of the script of
            the latest import that did.
        own: variables that every worker has for itself; nothing may look them up.
        start: the environment before.
        late: variables that were looked up by imports which the script does at a place that nobody
            knows.
    """

    reads: dict[str, int] = field(default_factory=dict)
    own: Collection[str] = ()
    start: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    late: set[str] = field(default_factory=set)

    def run(self, steps: Iterable[Step]) -> None:
        """Does the steps; what can't be imported is left for the script to find out.

        Raises:
            OwnError: an import looks up what every worker has for itself.
        """
        with self._noting() as environment, _uncollected():
            for step in steps:
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
    def _noting(self) -> Iterator[Environment]:
        added = QUIET.keys() - os.environ.keys()
        os.environ.update({name: QUIET[name] for name in added})
        environment: Any = os.environ
        plain = type(environment)
        environment.reads, environment.own, environment.line = self.reads, self.own, None
        environment.__class__ = Environment
        try:
            yield environment
        finally:
            environment.__class__ = plain
            del environment.reads, environment.own, environment.line
            for name in QUIET:
                self.reads.pop(name, None)
            for name in added:
                os.environ.pop(name, None)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Leaves cycles for later: looking for them would be a quarter of the time of the imports."""
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        if not gc.get_threshold()[0]:  # otherwise a module has set its own
            gc.set_threshold(*before)


def _import(module: str, names: tuple[str, ...]) -> None:
    """As `from module import names`; lazy modules import what a name stands for when it is asked.

    SystemExit too is what a module does that can't be imported here.
    """
    with suppress(Exception, SystemExit):
        found = importlib.import_module(module)
        for name in names:
            with suppress(Exception, SystemExit):
                if not hasattr(found, name) and hasattr(found, "__path__"):
                    importlib.import_module(f"{module}.{name}")


def problem() -> str | None:
    """Why no worker may be forked from this process; None where one may.

    A thread or a device's context doesn't come along in a fork.
    """
    threads = len(list(Path("/proc/self/task").iterdir())) - 1
    if threads:
        return f"an import has started {threads} thread{'s' * (threads > 1)}"
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(link.readlink())
            if target.startswith(DEVICES):
                return f"an import has opened {target}"
    for name in ("cuda", "npu", "xpu"):
        device = getattr(sys.modules.get("torch"), name, None)
        if device is not None and device.is_initialized():
            return f"an import has initialized torch.{name}"
    return None


def set_blas_threads() -> None:
    """Gives OpenBLAS the threads in a worker that it would have started when it was loaded.

    Their number is OPENBLAS_NUM_THREADS, else OMP_NUM_THREADS, else that of the cores (OpenBLAS's
    README, "Setting the number of threads at runtime"). numpy and scipy each bring a copy, whose
    functions have names of their own.
    """
    if "numpy" not in sys.modules or "OPENBLAS_NUM_THREADS" in os.environ:
        return
    asked = os.environ.get("OMP_NUM_THREADS", "")
    count = int(asked) if asked.isdecimal() else len(os.sched_getaffinity(0))
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for path in (one for one in mapped if "openblas" in one):
        library = ctypes.CDLL(path)
        for head in ("scipy_", ""):
            for tail in ("64_", ""):
                setter = getattr(library, f"{head}openblas_set_num_threads{tail}", None)
                if setter is not None and count > 1:
                    setter(count)


def release_nvml() -> None:
    """Closes NVML, which torch leaves open where it has counted devices by it.

    torch/cuda/__init__.py: `_raw_device_count_nvml` initializes the library and doesn't shut it
    down. Each call undoes one initialization.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL("libnvidia-ml.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        for _ in range(16):
            if library.nvmlShutdown():
                return
