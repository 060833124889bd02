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
from dataclasses import dataclass, field
from typing import Any, Self

from ...workload.script.imports import FIRST, Import
from .module_marks import (
    ABSENT,
    Mark,
    checksum,
    installed_modules,
    marks_of,
    replaced_by_user,
    torch_defaults,
)
from .preload import Preloaded, UnsharedImport

UNSET = "\0"
"""The checksum of a variable that isn't set."""


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
        new = {name: module for name, module in installed_modules() if name not in self.modules}
        return Report(
            {name: marks_of(module) for name, module in new.items()},
            {name: checksum(environment.get(name, UNSET)) for name in changed},
            torch_defaults(),
            replaced_by_user(),
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
    known = {name for name, _ in installed_modules()}
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
        if checksum(os.environ.get(name, UNSET)) != report.variables[name]:
            return f"a later import reads {name}, which differs in the worker"
    here = {name: marks_of(module) for name, module in installed_modules() if name not in known}
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
