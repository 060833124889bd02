"""What a worker has imported beyond what it was forked with, and whether its server may do so too.

A script imports more while it runs: in its functions, after calls whose consequences nobody knows,
inside libraries. A worker reports that. A copy of the server imports the same, earlier than the
next worker's script would, namely before whatever the script does first. It serves only where that
can be seen to make no difference: otherwise the server stays as it is.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from zlib import crc32

from .preload import Preloaded
from .script_imports import FIRST, Import, is_installed

OWN = str(Path(__file__).parent)
GONE = "\0"
"""What stands for the text of a variable that isn't set."""
HELD = "CURRENT_DEVICE"
"""The name in torch/utils/_device.py of the device for new tensors; asking torch imports more."""
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
    """

    modules: Mapping[str, Mapping[str, int]]
    variables: Mapping[str, int]
    defaults: str
    changed: str | None = None


@dataclass(frozen=True, slots=True)
class Fork:
    """A forked worker as it was at its start.

    Attributes:
        variables: the server's environment.
        modules: the names of all that was imported.
    """

    variables: Mapping[str, str]
    modules: Set[str] = field(default_factory=lambda: frozenset(sys.modules))

    def report(self, environment: Mapping[str, str]) -> Report:
        """What has changed since."""
        names = self.variables.keys() | environment.keys()
        changed = [name for name in names if self.variables.get(name) != environment.get(name)]
        return Report(
            {name: _marks(module) for name, module in _installed() if name not in self.modules},
            {name: _mark(environment.get(name, GONE)) for name in changed},
            _defaults(),
            _changed(),
        )


def follow(report: Report, preloaded: Preloaded) -> str | None:
    """Imports what a worker has imported, in this process.

    Args:
        report: the worker's.
        preloaded: what has been imported here; what is read now is noted there as late.

    Returns:
        Why no worker may be forked from this process any more; None where one may.
    """
    if report.changed is not None:
        return f"the script has replaced {report.changed}"
    if any(name.partition(".")[0] == FIRST for name in report.modules):
        return f"{FIRST} changes what is imported after it"
    known = {name for name, _ in _installed()}
    before, late = _state(), Preloaded()
    late.run(Import(name, (), 0) for name in report.modules)
    preloaded.late.update(late.reads)
    if any(_state()[name] != value for name, value in before.items()):
        return "a later import draws random numbers or handles signals"
    for name in sorted(preloaded.late & report.variables.keys()):
        if _mark(os.environ.get(name, GONE)) != report.variables[name]:
            return f"a later import reads {name}, which is the worker's own"
    ours = {name: module for name, module in _installed() if name not in known}
    if unknown := report.modules.keys() ^ ours.keys():
        return f"{min(unknown)} is imported by the script alone, or before it alone"
    for name, module in ours.items():
        for attribute, mark in _marks(module).items():
            if report.modules[name].get(attribute) != mark:
                return f"{name}.{attribute or 'origin'} is another one where the script imports it"
    if _defaults() != report.defaults:
        return "the script has changed torch's defaults"
    return None


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
    found = [("", str(vars(module).get("__file__")))]
    if type(module) is ModuleType:
        held = list(vars(module).items())
        found += [(name, text) for name, value in held if (text := _text(name, value, DEPTH))]
    return {name: _mark(text) for name, text in found}


def _mark(text: str) -> int:
    return crc32(text.encode(errors="surrogateescape"))


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
    state["random"] = random.getstate()
    if "numpy.random" in sys.modules:
        state["numpy"] = [str(one) for one in sys.modules["numpy.random"].get_state()]
    if "torch" in sys.modules:
        state["torch"] = sys.modules["torch"].get_rng_state().tolist()
    return state
