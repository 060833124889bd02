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


class PerRankVariableRead(BaseException):
    """An import looks up what differs between ranks: it can't be done for all of them.

    No `except Exception` of the imported module's may catch it.

    Attributes:
        variable: its name.
        package: the one that looks it up.
    """

    def __init__(self, variable: str, package: str) -> None:
        super().__init__(variable, package)
        self.variable, self.package = variable, package


class RecordingEnvironment(os._Environ[str]):
    """`os.environ` while modules are preloaded: it notes what they look up.

    Attributes:
        reads: names that were looked up, with the line of the script of the latest import that did.
        per_rank: names of variables that differ between ranks.
        line: of the import that is under way; None where nothing is to be noted.
    """

    reads: dict[str, int]
    per_rank: Collection[str]
    line: int | None

    def __getitem__(self, name: str) -> str:
        if self.line is not None:
            self.reads[name] = max(self.line, self.reads.get(name, 0))
            if name in self.per_rank:
                raise PerRankVariableRead(name, _reading_package())
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


def _reading_package() -> str:
    """The package whose module looks up a variable."""
    frame = sys._getframe(2)
    # `get` and `in` are methods of os and collections.abc: who has called them is meant.
    while frame.f_back and frame.f_globals.get("__name__") in ("os", "collections.abc"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


@dataclass(slots=True)
class Preloaded:
    """What has been imported, and what that has done.

    Attributes:
        per_rank: variables that differ between ranks; no import may look them up.
        environment: as it was before.
        reads: variables that imports have looked up, with the line of the script of the latest
            import that did.
        late_reads: variables that were looked up by imports of which nobody knows where in the
            script they are.
    """

    per_rank: Collection[str] = ()
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    reads: dict[str, int] = field(default_factory=dict)
    late_reads: set[str] = field(default_factory=set)

    def run(self, steps: Iterable[Step]) -> None:
        """Does the steps; what can't be imported is left for the script to find out.

        Raises:
            PerRankVariableRead: an import looks up what differs between ranks.
        """
        with self._recording() as environment, _uncollected():
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
    def _recording(self) -> Iterator[RecordingEnvironment]:
        added = QUIET.keys() - os.environ.keys()
        os.environ.update({name: QUIET[name] for name in added})
        environment: Any = os.environ
        plain = type(environment)
        environment.reads, environment.per_rank = self.reads, self.per_rank
        environment.line = None
        # The object stays the same, since others hold it: `from os import environ`.
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
def _uncollected() -> Iterator[None]:
    """Without the cycle collector, which takes a quarter of the time of the imports."""
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


def problems() -> Iterator[str]:
    """Why no worker may be forked from this process.

    A thread or a device's context doesn't come along in a fork.
    """
    if threads := len(list(Path("/proc/self/task").iterdir())) - 1:
        yield f"an import has started {threads} thread{'s' * (threads > 1)}"
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder's own descriptor is closed by now
            target = str(link.readlink())
            if target.startswith(DEVICES):
                yield f"an import has opened {target}"
    for name in ("cuda", "npu", "xpu"):
        device = getattr(sys.modules.get("torch"), name, None)
        if device is not None and device.is_initialized():
            yield f"an import has initialized torch.{name}"


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
    for path in (path for path in mapped if "openblas" in path):
        library = ctypes.CDLL(path)
        for head in ("scipy_", ""):
            for tail in ("64_", ""):
                setter = getattr(library, f"{head}openblas_set_num_threads{tail}", None)
                if setter is not None and count > 1:
                    setter(count)


def release_nvml() -> None:
    """Closes NVML, which torch leaves open where it has counted devices by it.

    torch/cuda/__init__.py: `_raw_device_count_nvml` initializes the library and doesn't shut it
    down. It holds the devices open, which would keep every worker from being forked.
    """
    with suppress(OSError, AttributeError):  # it isn't loaded, or isn't NVML
        library = ctypes.CDLL("libnvidia-ml.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        for _ in range(16):  # each call undoes one initialization; it fails where none is left
            if library.nvmlShutdown():
                return
