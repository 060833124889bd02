"""What a worker has imported beyond what it was forked with, and whether its server may do so too.

A script imports more while it runs: in its functions, after calls whose consequences nobody knows,
inside libraries. A worker reports that. A copy of the server imports the same, earlier than the
next worker's script would, namely before whatever the script does first. It serves only where that
can be seen to make no difference: otherwise the server stays as it is.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from zlib import crc32

from ...workload.script.imports import FIRST, Import, is_installed
from .preload import Preloaded

OWN = str(Path(__file__).parents[2])
"""How the files of this package begin: guards are neither installed modules nor the user's."""
GONE = "\0"
"""What stands for the text of a variable that isn't set."""
HELD = "CURRENT_DEVICE"
"""The name in torch/utils/_device.py of the device for new tensors; asking torch imports more."""
OWN_MARK = 1
"""The bit in the mark of what the module itself has defined."""
DEPTH = 3
"""How far functions are followed into those that they wrap."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker has imported until its model was there.

    Attributes:
        modules: installed ones in their order, each with a mark of every function, class and flag
            that it holds by name: what it has taken from others when it was imported is among them.
        variables: those that the server had otherwise, each with a mark of its text; the
            launcher, the script or an import has set them.
        defaults: torch's type and device for new tensors.
        changed: something of an installed package that the user's code has put its own in place of.
        seeded: those of the modules that were imported after Python's generator was first seeded.
    """

    modules: Mapping[str, Mapping[str, int]]
    variables: Mapping[str, int]
    defaults: str
    changed: str | None = None
    seeded: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Fork:
    """A forked worker as it was at its start.

    Attributes:
        variables: the server's environment.
        modules: the names of all that was imported.
        unseeded: what was when Python's generator was first seeded; empty before.
    """

    variables: Mapping[str, str]
    modules: Set[str] = field(default_factory=lambda: frozenset(sys.modules))
    unseeded: set[str] = field(default_factory=set)

    def watch(self) -> None:
        """Notes when `random.seed` is called for the first time."""
        plain = random.seed

        @functools.wraps(plain)
        def seed(*arguments: Any, **keywords: Any) -> None:
            random.seed = plain
            self.unseeded.update(sys.modules)
            plain(*arguments, **keywords)

        random.seed = seed

    def report(self, environment: Mapping[str, str]) -> Report:
        """What has changed since; from now on nobody watches any more."""
        random.seed = getattr(random.seed, "__wrapped__", random.seed)
        names = self.variables.keys() | environment.keys()
        changed = [name for name in names if self.variables.get(name) != environment.get(name)]
        new = {name: module for name, module in _installed() if name not in self.modules}
        return Report(
            {name: _marks(module) for name, module in new.items()},
            {name: _mark(environment.get(name, GONE)) for name in changed},
            _defaults(),
            _changed(),
            [name for name in new if self.unseeded and name not in self.unseeded],
        )


def follow(report: Report, preloaded: Preloaded, without: str | None) -> str | None:
    """Imports what a worker has imported, in this process.

    Args:
        report: the worker's.
        without: a package that isn't imported, since it looks up what each worker has for itself.
        preloaded: what has been imported here; what is read now is noted there as late.

    Returns:
        Why no worker may be forked from this process any more; None where one may.
    """
    if report.changed is not None:
        return f"the script has replaced {report.changed}"
    if any(name.partition(".")[0] == FIRST for name in report.modules):
        return f"{FIRST} changes what is imported after it"
    theirs = {
        name: marks for name, marks in report.modules.items() if name.partition(".")[0] != without
    }
    known = {name for name, _ in _installed()}
    before, late = _state(), Preloaded()
    drawing: list[str] = []
    late.run(_imports(theirs, drawing))
    preloaded.late.update(late.reads)
    if drawn := sorted(set(drawing).intersection(report.seeded)):
        return f"{drawn[0]} draws random numbers, which the script has seeded by then"
    after = _state()
    for name, value in before.items():
        if after[name] != value:
            return f"a later import changes {name}"
    for name in sorted(preloaded.late & report.variables.keys()):
        if _mark(os.environ.get(name, GONE)) != report.variables[name]:
            return f"a later import reads {name}, which is the worker's own"
    ours = {name: module for name, module in _installed() if name not in known}
    if unknown := theirs.keys() ^ ours.keys():
        return f"{min(unknown)} is imported by the script alone, or before it alone"
    for name, module in ours.items():
        for attribute, mark in _marks(module).items():
            other = theirs[name].get(attribute, 0)
            # What a module has defined itself, others may have replaced since.
            if other != mark and not (mark & OWN_MARK and not other & OWN_MARK):
                return f"{name}.{attribute or 'origin'} is another one where the script imports it"
    if _defaults() != report.defaults:
        return "the script has changed torch's defaults"
    return None


def _imports(names: Iterable[str], drawing: list[str]) -> Iterator[Import]:
    """The imports; notes those that draw from Python's generator."""
    for name in names:
        before = random.getstate()
        yield Import(name, (), 0)
        if random.getstate() != before:
            drawing.append(name)


def _installed() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        if not issubclass(type(module), ModuleType):
            continue
        spec = vars(module).get("__spec__")  # lazy ones import something where they are asked
        if name == "__main__" or spec is None or spec.name != name or spec.origin is None:
            continue
        if is_installed(spec.origin) and not spec.origin.startswith(OWN):
            yield name, module


def _marks(module: ModuleType) -> dict[str, int]:
    """A mark of each function, class and flag by name, and of where the module comes from.

    Modules that are made up as they are asked, those of transformers, hold nothing of their own.
    """
    path = str(vars(module).get("__file__"))
    marks = {"": _mark(path)}
    if type(module) is ModuleType:
        for name, value in list(vars(module).items()):
            if (text := _text(name, value, DEPTH)) is not None:
                is_own = text.startswith((f"{path}:", f"{module.__name__}."))
                marks[name] = _mark(text) | OWN_MARK if is_own else _mark(text)
    return marks


def _mark(text: str) -> int:
    return crc32(text.encode(errors="surrogateescape")) << 1


def _text(name: str, value: Any, depth: int) -> str | None:
    """What tells a function from another that has taken its place, wrappers included."""
    kind = type(value)
    if kind is FunctionType:
        code = value.__code__
        cells = value.__closure__ or () if depth else ()
        inner = [_text("", one, depth - 1) for one in _contents(cells)]
        return f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}{list(filter(None, inner))}"
    if issubclass(kind, type) or kind is BuiltinFunctionType:
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value) if kind is bool and name.isupper() else None


def _contents(cells: Any) -> Iterator[Any]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty as yet
            continue


def _changed() -> str | None:
    """Something of an installed package that is the user's own instead.

    A later import may take it from there, or wrap it.
    """
    for name, module in _installed():
        if "-packages" not in str(vars(module).get("__file__")):
            continue
        for attribute, value in list(vars(module).items()):
            if _is_users(value):
                return f"{name}.{attribute}"
            if issubclass(type(value), type) and value.__module__ == name:
                for inner, method in list(vars(value).items()):
                    if _is_users(method):
                        return f"{name}.{attribute}.{inner}"
    return None


def _is_users(value: Any) -> bool:
    if type(value) is not FunctionType:
        return False
    path = value.__code__.co_filename
    return not path.startswith("<") and not is_installed(path) and not path.startswith(OWN)


def _defaults() -> str:
    torch, device = sys.modules.get("torch"), sys.modules.get("torch.utils._device")
    return "" if torch is None else f"{torch.get_default_dtype()} {vars(device or torch).get(HELD)}"


def _state() -> dict[str, Any]:
    """What an import may change besides modules, so that it matters when it is done.

    Generators that an import brings along are new in each worker, whenever it is done.
    """
    state: dict[str, Any] = {"signals": [*map(signal.getsignal, signal.valid_signals())]}
    for name in ("numpy.random", "torch"):
        if name in sys.modules:
            state[f"{name}'s generator"] = _GENERATORS[name](sys.modules[name])
    return state


_GENERATORS: Mapping[str, Callable[[Any], Any]] = {
    "numpy.random": lambda numpy: [str(one) for one in numpy.get_state()],
    "torch": lambda torch: torch.get_rng_state().tolist(),
}
