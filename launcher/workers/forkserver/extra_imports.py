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
from .preload import Preloaded

UNSET = "\0"
"""Stands for the text of a variable that isn't set."""


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
        new = {name: module for name, module in installed_modules() if name not in self.modules}
        return Report(
            {name: marks_of(module) for name, module in new.items()},
            {name: checksum(environment.get(name, UNSET)) for name in changed},
            torch_defaults(),
            replaced_by_user(),
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
    known = {name for name, _ in installed_modules()}
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
        if checksum(os.environ.get(name, UNSET)) != report.variables[name]:
            return f"a later import reads {name}, which is the worker's own"
    ours = {name: marks_of(module) for name, module in installed_modules() if name not in known}
    if unknown := theirs.keys() ^ ours.keys():
        return f"{min(unknown)} is imported by the script alone, or before it alone"
    if different := next(_different(ours, theirs), None):
        return f"{different} is another one where the script imports it"
    if torch_defaults() != report.defaults:
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
