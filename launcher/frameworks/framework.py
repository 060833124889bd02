"""The facts that are known of a framework without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.certainty import Origin
from ..core.settings import Value
from ..core.workload import Known


@dataclass(frozen=True, slots=True)
class FrameworkRow:
    """A framework; only the first three facts are needed.

    Attributes:
        name: as its users write it.
        packages: its import names, the current one first.
        repository: on github.com, for bug reports.
        distribution: its name for pip, if it isn't the package's.
        commands: programs that start it.
        launching: parts of the paths of its files that only start workers.
        in_log: pattern of the files and words of its loop in a log.
        on_trainer: its loop is transformers' Trainer.
        less_memory: its settings that reduce memory, for people.
        program: pattern of its scripts and modules, whose arguments are all its own.
        functions: a script that calls one of them is such a program, too.
        takes_file: its program takes `[train] FILE`, then `key=value` or flags.
        renamed: its arguments that the readers know by another name, and that name.
        defaults: its arguments' values without conditions, if they aren't the Trainer's.
        has_own_defaults: it replaces the Trainer's defaults of checkpointing and precision.
    """

    name: str
    packages: tuple[str, ...]
    repository: str
    distribution: str = ""
    commands: tuple[str, ...] = ()
    launching: tuple[str, ...] = ()
    in_log: str = ""
    on_trainer: bool = False
    less_memory: str = ""
    program: str = ""
    functions: frozenset[str] = frozenset()
    takes_file: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Value] = field(default_factory=dict)
    has_own_defaults: bool = False

    def default(self, name: str, value: Value) -> Known:
        """A value that an argument has by default."""
        return Known(value, Origin.DEFAULT, f"{self.name}'s default of {name}")
