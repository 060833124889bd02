"""Lets the fork server preload what the first worker imported late, when that is safe.

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
from typing import Any, NamedTuple, Self
from zlib import crc32

from ...workload.script.imports import FIRST, Import, is_installed
from .preload import Preloaded

OURS = str(Path(__file__).parents[2])
"""How the files of this package begin: guards are neither installed modules nor the user's."""
UNSET = "\0"
"""Stands for the text of a variable that isn't set."""
DEFAULT_DEVICE = "CURRENT_DEVICE"
"""The name in torch/utils/_device.py of the device for new tensors; asking torch imports more."""
DEPTH = 3
"""How far functions are followed into those that they wrap."""


class Mark(NamedTuple):
    """What tells a function, class or flag that a module holds from another.

    Attributes:
        crc: checksum of the text that describes it.
        is_own: the module has defined it, rather than taken it from another.
    """

    crc: int
    is_own: bool = False


ABSENT = Mark(0)


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker has imported until its model was there.

    Attributes:
        modules: installed ones in their order, each with a mark of every function, class and flag
            that it holds by name: what it has taken from others when it was imported is among them.
        variables: those that the server had otherwise, each with a checksum of its text; the
            launcher, the script or an import has set them.
        defaults: torch's type and device for new tensors.
        replaced: something of an installed package that the user's code has put its own in place
            of.
        seeded: those of the modules that were imported after Python's generator was first seeded.
    """

    modules: Mapping[str, Mapping[str, Mark]]
    variables: Mapping[str, int]
    defaults: str
    replaced: str | None = None
    seeded: Sequence[str] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """The report whose `dataclasses.asdict` has been through JSON."""
        modules = {
            module: {name: Mark(*mark) for name, mark in marks.items()}
            for module, marks in fields["modules"].items()
        }
        return cls(**{**fields, "modules": modules})


@dataclass(frozen=True, slots=True)
class Fork:
    """A forked worker as it was at its start.

    Attributes:
        variables: the server's environment.
        modules: the names of all that was imported.
        unseeded: names of what was imported before Python's generator was first seeded; empty
            until it is.
    """

    variables: Mapping[str, str]
    modules: Set[str] = field(default_factory=lambda: frozenset(sys.modules))
    unseeded: set[str] = field(default_factory=set)

    def watch(self) -> None:
        """Notes what has been imported when `random.seed` is called for the first time."""
        original = random.seed

        @functools.wraps(original)
        def seed(*arguments: Any, **keywords: Any) -> None:
            random.seed = original
            self.unseeded.update(sys.modules)
            original(*arguments, **keywords)

        random.seed = seed

    def report(self, environment: Mapping[str, str]) -> Report:
        """What has changed since; from now on nobody watches any more."""
        random.seed = getattr(random.seed, "__wrapped__", random.seed)
        names = self.variables.keys() | environment.keys()
        changed = [name for name in names if self.variables.get(name) != environment.get(name)]
        new = {name: module for name, module in _installed() if name not in self.modules}
        return Report(
            {name: _marks(module) for name, module in new.items()},
            {name: _crc(environment.get(name, UNSET)) for name in changed},
            _defaults(),
            _replaced(),
            [name for name in new if self.unseeded and name not in self.unseeded],
        )


def follow(report: Report, preloaded: Preloaded, excluded_package: str | None) -> str | None:
    """Imports what a worker has imported, in this process.

    No worker may be forked from this process afterwards where

    1. the user's code has put something of its own into an installed package: a later import may
       take it from there, or wrap it;
    2. something is imported that changes what is imported after it;
    3. an import draws from a generator that the script has seeded by then;
    4. an import changes what isn't a module: signal handlers, other generators;
    5. an import looks up a variable that the worker had otherwise;
    6. more or less has been imported than in the worker;
    7. a module holds another function, class or flag than in the worker, or lies elsewhere;
    8. the script has changed torch's defaults, which functions may have taken as their own.

    Args:
        report: the worker's.
        preloaded: what has been imported here; what is read now is noted there as late.
        excluded_package: isn't imported, since it looks up what differs between ranks.

    Returns:
        The first of these reasons; None where workers may be forked.
    """
    if report.replaced is not None:
        return f"the script has replaced {report.replaced}"
    if any(name.partition(".")[0] == FIRST for name in report.modules):
        return f"{FIRST} changes what is imported after it"
    theirs = {
        name: marks
        for name, marks in report.modules.items()
        if name.partition(".")[0] != excluded_package
    }
    known = {name for name, _ in _installed()}
    before, late = _state(), Preloaded()
    drawing: list[str] = []
    late.run(_imports(theirs, drawing))
    preloaded.late_reads.update(late.reads)
    if drawn := sorted(set(drawing).intersection(report.seeded)):
        return f"{drawn[0]} draws random numbers, which the script has seeded by then"
    after = _state()
    for name, value in before.items():
        if after[name] != value:
            return f"a later import changes {name}"
    for name in sorted(preloaded.late_reads & report.variables.keys()):
        if _crc(os.environ.get(name, UNSET)) != report.variables[name]:
            return f"a later import reads {name}, which is the worker's own"
    ours = {name: _marks(module) for name, module in _installed() if name not in known}
    if unknown := theirs.keys() ^ ours.keys():
        return f"{min(unknown)} is imported by the script alone, or before it alone"
    if different := next(_different(ours, theirs), None):
        return f"{different} is another one where the script imports it"
    if _defaults() != report.defaults:
        return "the script has changed torch's defaults"
    return None


def _different(
    ours: Mapping[str, Mapping[str, Mark]], theirs: Mapping[str, Mapping[str, Mark]]
) -> Iterator[str]:
    """What the same modules hold here and in the worker, but not the same."""
    for name, marks in ours.items():
        for attribute, mark in marks.items():
            other = theirs[name].get(attribute, ABSENT)
            # What a module has defined itself, others may have replaced since.
            is_replaced = mark.is_own and not other.is_own
            if other != mark and not is_replaced:
                yield f"{name}.{attribute or 'origin'}"


def _imports(names: Iterable[str], drawing: list[str]) -> Iterator[Import]:
    """The imports; notes those that draw from Python's generator."""
    for name in names:
        before = random.getstate()
        yield Import(name, (), 0)
        if random.getstate() != before:
            drawing.append(name)


def _installed() -> Iterator[tuple[str, ModuleType]]:
    """The installed modules that are imported, by name.

    Nothing is asked of them by `getattr`: a lazy module would import what it is asked for.
    """
    for name, module in list(sys.modules.items()):
        if not issubclass(type(module), ModuleType):
            continue
        spec = vars(module).get("__spec__")
        if name == "__main__" or spec is None or spec.name != name or spec.origin is None:
            continue
        if is_installed(spec.origin) and not spec.origin.startswith(OURS):
            yield name, module


def _marks(module: ModuleType) -> dict[str, Mark]:
    """A mark of each function, class and flag by name, and of where the module comes from.

    Lazy modules, those of transformers, hold nothing of their own.
    """
    path = str(vars(module).get("__file__"))
    marks = {"": Mark(_crc(path))}
    if type(module) is ModuleType:
        for name, value in list(vars(module).items()):
            if (text := _text(name, value, DEPTH)) is not None:
                is_own = text.startswith((f"{path}:", f"{module.__name__}."))
                marks[name] = Mark(_crc(text), is_own)
    return marks


def _crc(text: str) -> int:
    return crc32(text.encode(errors="surrogateescape"))


def _text(name: str, value: Any, depth: int) -> str | None:
    """What tells a function from another that has taken its place, wrappers included."""
    kind = type(value)
    if kind is FunctionType:
        code = value.__code__
        cells = value.__closure__ or () if depth else ()
        inner = [_text("", content, depth - 1) for content in _contents(cells)]
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


def _replaced() -> str | None:
    """Something of an installed package that is the user's own instead."""
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
    return not path.startswith("<") and not is_installed(path) and not path.startswith(OURS)


def _defaults() -> str:
    torch, device = sys.modules.get("torch"), sys.modules.get("torch.utils._device")
    if torch is None:
        return ""
    return f"{torch.get_default_dtype()} {vars(device or torch).get(DEFAULT_DEVICE)}"


def _state() -> dict[str, Any]:
    """What an import may change besides modules, so that it matters when it is done.

    Only of modules that are there: a generator that an import brings along is seeded anew in each
    worker, whenever it is imported.
    """
    state: dict[str, Any] = {"signals": [*map(signal.getsignal, signal.valid_signals())]}
    for name in ("numpy.random", "torch"):
        if name in sys.modules:
            state[f"{name}'s generator"] = _GENERATORS[name](sys.modules[name])
    return state


_GENERATORS: Mapping[str, Callable[[Any], Any]] = {
    "numpy.random": lambda numpy: [str(part) for part in numpy.get_state()],
    "torch": lambda torch: torch.get_rng_state().tolist(),
}
