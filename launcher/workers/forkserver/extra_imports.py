"""Lets the fork server preload modules that the first worker imported late, if that is safe.

A script imports more while it runs: in its functions, after calls with unknown effects, inside
libraries. A worker reports these imports, and a copy of the server imports the same modules before
the next worker's script begins. The copy is used only if the earlier import provably makes no
difference; otherwise workers are forked from the server as before.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple, Self
from zlib import crc32

from ...core.private_names import DEFAULT_DEVICE
from ...workload.script.imports import FIRST, Import, is_installed
from .preload import Preloaded, UnsharedImport

UNSET = "\0"
"""The checksum of a variable that isn't set."""
_PACKAGE = str(Path(__file__).parents[2])
"""Prefix of safe-launch's files, which are neither installed modules nor the user's."""
_DEPTH = 3
"""Levels of wrapped functions that are followed."""


@dataclass(frozen=True, slots=True)
class Report:
    """The modules that a worker had imported by the time it had its model.

    Attributes:
        modules: installed modules in import order, each with marks of every function, class and
            flag in it by name, including those imported from other modules.
        variables: those that differ from the server's, each with a checksum of its text; the
            launcher, the script or an import has set them.
        defaults: torch's type and device for new tensors.
        replaced: name of an object in an installed package that the user's code has replaced.
        seeded: the modules that were imported after Python's generator was first seeded.
    """

    modules: Mapping[str, Mapping[str, Mark]]
    variables: Mapping[str, int]
    defaults: str
    replaced: str | None = None
    seeded: Sequence[str] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """The report, from its `dataclasses.asdict` after a round trip through JSON."""
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
        modules: names of all imported modules.
        unseeded: names of the modules that were imported before Python's generator was first
            seeded; empty until it is.
    """

    variables: Mapping[str, str]
    modules: Set[str] = field(default_factory=lambda: frozenset(sys.modules))
    unseeded: set[str] = field(default_factory=set)

    def watch(self) -> None:
        """Notes which modules are imported at the first call of `random.seed`."""
        original = random.seed

        @functools.wraps(original)
        def seed(*arguments: Any, **keywords: Any) -> None:
            random.seed = original
            self.unseeded.update(sys.modules)
            original(*arguments, **keywords)

        random.seed = seed

    def report(self, environment: Mapping[str, str]) -> Report:
        """The changes since the start; ends the watching."""
        random.seed = getattr(random.seed, "__wrapped__", random.seed)
        names = self.variables.keys() | environment.keys()
        changed = [name for name in names if self.variables.get(name) != environment.get(name)]
        new = {name: module for name, module in _installed_modules() if name not in self.modules}
        return Report(
            {name: _marks_of(module) for name, module in new.items()},
            {name: _checksum(environment.get(name, UNSET)) for name in changed},
            torch_defaults(),
            _replaced_by_user(),
            [name for name in new if self.unseeded and name not in self.unseeded],
        )


def follow(report: Report, preloaded: Preloaded, excluded_package: str | None) -> str | None:
    """Imports a worker's imports in this process.

    No worker may be forked from this process afterwards if

    1. the user's code has put an object into an installed package: a later import may use or wrap
       it;
    2. an import changes later imports;
    3. an import draws from a generator that the script has seeded by then;
    4. an import changes more than modules: signal handlers, other generators;
    5. an import looks up a variable that differed in the worker;
    6. more or less has been imported than in the worker;
    7. a module holds another function, class or flag than in the worker, or has another file;
    8. the script has changed torch's defaults, which functions may have stored.

    Variables read from now on are noted as late reads of `preloaded`. The excluded package is
    skipped, as it looks up variables that differ between ranks.

    Returns:
        The first of these reasons; None if workers may be forked.
    """
    if report.replaced is not None:
        return f"the script has replaced {report.replaced}"
    if any(name.partition(".")[0] == FIRST for name in report.modules):
        return f"{FIRST} changes later imports"
    reported = {
        name: marks
        for name, marks in report.modules.items()
        if name.partition(".")[0] != excluded_package
    }
    known = {name for name, _ in _installed_modules()}
    before, late = _state(), Preloaded()
    drawing: list[str] = []
    try:
        late.run(_imports(reported, drawing))
    except UnsharedImport as unshared:
        return f"{unshared.package} {unshared.reason}"
    preloaded.late_reads.update(late.reads)
    if drawn := sorted(set(drawing).intersection(report.seeded)):
        return f"{drawn[0]} draws random numbers, which the script has seeded by then"
    after = _state()
    for name, value in before.items():
        if after[name] != value:
            return f"a later import changes {name}"
    for name in sorted(preloaded.late_reads & report.variables.keys()):
        if _checksum(os.environ.get(name, UNSET)) != report.variables[name]:
            return f"a later import reads {name}, which differs in the worker"
    here = {name: _marks_of(module) for name, module in _installed_modules() if name not in known}
    if unknown := reported.keys() ^ here.keys():
        return f"{min(unknown)} is imported only by the script, or only before it"
    if different := next(_differing_names(here, reported), None):
        return f"{different} differs when the script imports it"
    if torch_defaults() != report.defaults:
        return "the script has changed torch's defaults"
    return None


def _differing_names(
    here: Mapping[str, Mapping[str, Mark]], reported: Mapping[str, Mapping[str, Mark]]
) -> Iterator[str]:
    """The names in modules whose marks differ between this process and the worker."""
    for name, marks in here.items():
        for attribute, mark in marks.items():
            other = reported[name].get(attribute, ABSENT)
            # Other modules may have replaced what a module has defined itself.
            is_replaced = mark.is_own and not other.is_own
            if other != mark and not is_replaced:
                yield f"{name}.{attribute or 'origin'}"


def _imports(names: Iterable[str], drawing: list[str]) -> Iterator[Import]:
    """Yields the imports; adds to `drawing` those that draw from Python's generator."""
    for name in names:
        before = random.getstate()
        yield Import(name, (), 0)
        if random.getstate() != before:
            drawing.append(name)


def _state() -> dict[str, Any]:
    """Signal handlers and generators, whose change by an import makes its time matter.

    Only loaded modules count: each worker seeds the generator of a new import anew.
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


class Mark(NamedTuple):
    """Identifies a function, class or flag that a module holds.

    Attributes:
        crc: checksum of the text that describes it.
        is_own: the module has defined it, not imported it.
    """

    crc: int
    is_own: bool = False


ABSENT = Mark(0)


def _installed_modules() -> Iterator[tuple[str, ModuleType]]:
    """The imported modules of installed packages, by name.

    No `getattr` is used on them: a lazy module would import what is looked up.
    """
    for name, module in list(sys.modules.items()):
        if not issubclass(type(module), ModuleType):
            continue
        spec = vars(module).get("__spec__")
        if name == "__main__" or spec is None or spec.name != name or spec.origin is None:
            continue
        if is_installed(spec.origin) and not spec.origin.startswith(_PACKAGE):
            yield name, module


def _marks_of(module: ModuleType) -> dict[str, Mark]:
    """A mark of each function, class and flag by name, and of the module's file.

    Lazy modules, like those of transformers, have none.
    """
    path = str(vars(module).get("__file__"))
    marks = {"": Mark(_checksum(path))}
    if type(module) is ModuleType:
        for name, value in list(vars(module).items()):
            if (text := _text(name, value, _DEPTH)) is not None:
                is_own = text.startswith((f"{path}:", f"{module.__name__}."))
                marks[name] = Mark(_checksum(text), is_own)
    return marks


def _checksum(text: str) -> int:
    """A text's checksum."""
    return crc32(text.encode(errors="surrogateescape"))


def _text(name: str, value: Any, depth: int) -> str | None:
    """A text that changes if the function is replaced; includes the functions that it wraps."""
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
        with suppress(ValueError):  # it is still empty
            yield cell.cell_contents


def _replaced_by_user() -> str | None:
    """The name of an object in an installed package that the user's code has replaced."""
    for name, module in _installed_modules():
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
    """Whether the value is a function from one of the user's files."""
    if type(value) is not FunctionType:
        return False
    path = value.__code__.co_filename
    return not path.startswith("<") and not is_installed(path) and not path.startswith(_PACKAGE)


def torch_defaults() -> str:
    """The type and device of new tensors; empty without torch."""
    torch, device = sys.modules.get("torch"), sys.modules.get(DEFAULT_DEVICE.module)
    if torch is None:
        return ""
    if device is None or DEFAULT_DEVICE.path in vars(device):  # torch's getter would import more
        current = vars(device or torch).get(DEFAULT_DEVICE.path)
    else:
        current = torch.get_default_device()
    return f"{torch.get_default_dtype()} {current}"
