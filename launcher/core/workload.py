"""The training, with the known values, their origins and their certainty."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Self

from .choices import Engine, Framework
from .model import Model
from .settings import BATCH, Fact, Name, Setting, Value


class Certainty(IntEnum):
    """The certainty of a value; docs/using/certainty.md lists what a plan may do at each level."""

    ASSUMED = 0
    """A framework's default, which the script may override."""
    DERIVED = 1
    """Follows from the script's imports."""
    STATED = 2
    """The user's flag, configuration file or option."""
    OBSERVED = 3
    """Seen in a running worker."""
    PROVEN = 4
    """Proven by a failure."""


class Origin(IntEnum):
    """The origin of a value; of two statements on a name, the higher origin takes precedence.

    Attributes:
        certainty: how values from there are known.
    """

    certainty: Certainty

    def __new__(cls, rank: int, certainty: Certainty) -> Self:
        """A row `NAME = rank, certainty`."""
        row = int.__new__(cls, rank)
        row._value_, row.certainty = rank, certainty
        return row

    DEFAULT = 0, Certainty.ASSUMED
    """The framework's default in the installed version, which the script may override."""
    SCRIPT = 1, Certainty.DERIVED
    """Derived from the script's imports."""
    PRESET = 2, Certainty.STATED
    """A named preset."""
    CONFIG = 3, Certainty.STATED
    """A configuration file, or an environment variable for it."""
    FLAG = 4, Certainty.STATED
    """A flag on the script's command line."""
    LEARNT = 5, Certainty.PROVEN
    """Proven or observed by an earlier run of the same script."""
    OBSERVED = 6, Certainty.OBSERVED
    """Observed in a running worker."""
    LESSON = 7, Certainty.PROVEN
    """Proven by the failure of an attempt."""


@dataclass(frozen=True, slots=True)
class Known:
    """A value and where it was read.

    Attributes:
        origin: rank of the source.
        source: the source in words, e.g. `zero3.json: zero_optimization.stage`.
    """

    value: Value
    origin: Origin
    source: str


VERSIONED = (
    *("torch", "deepspeed", "transformers", "accelerate", "peft", "trl", "torch_npu"),
    *("bitsandbytes", "liger_kernel"),
)
"""Distributions whose versions decide which failures are known, and how much memory is needed."""

Statement = tuple[Name, Known]
"""A value that a reader found, with its name."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements from an attempt that ran out of memory, or that has trained to its end.

    Attributes:
        settings: the settings that it ran with.
        needed: bytes that a rank held at most; with what it requested when it failed, which is a
            lower bound of its need.
        context: bytes of it that aren't the training's: the accelerator's context, or the process
            with its libraries; None if unknown.
        limit: bytes that the rank could get at most.
    """

    settings: Mapping[Setting, Value]
    needed: int
    context: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """The latest run of the same script that has succeeded.

    Attributes:
        versions: of the frameworks that it trained with, by distribution name.
        source: the run, in words.
    """

    versions: Mapping[str, str]
    source: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Settings, facts and versions of a training run; absent values are unknown.

    Attributes:
        framework: the owner of the training loop.
        known: settings as the user asked for them, and facts, by name.
        versions: installed versions of the frameworks, by distribution name.
        notes: values that a reader could not use, as sentences.
        unmodelled: omissions and assumptions of the estimates, as sentences.
        not_understood: flags that, by their names, decide memory or a known failure, and that no
            reader understood.
        makes_batches: the script itself chooses the samples of a batch; options only state a size.
        trains_all: neither the script's source, all of which was read, nor a flag names adapters,
            frozen weights or further models: the first that it loads is trained as it is.
        wanted: settings that the launcher's own options ask for instead of the script's.
        measured: measurements of the memory from attempts that ran out of it.
        trained: a measurement of the memory from a run that trained; None if there is none.
        model: the shape of the model on disk, or as a worker reported it; None if unknown.
        earlier: the latest run of the script that is on record; None for none.
    """

    framework: Framework = Framework.NONE
    known: Mapping[Name, Known] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    unmodelled: tuple[str, ...] = ()
    not_understood: tuple[str, ...] = ()
    makes_batches: bool = False
    trains_all: bool = False
    model: Model | None = None
    wanted: Mapping[Setting, Known] = field(default_factory=lambda: MappingProxyType({}))
    measured: tuple[Measured, ...] = ()
    trained: Measured | None = None
    earlier: Earlier | None = None

    def value(self, name: Name) -> Value | None:
        """The value of a setting or fact; None if unknown."""
        known = self.known.get(name)
        return None if known is None else known.value

    @property
    def engine(self) -> Engine | None:
        """The engine that reduces the gradients; None if unknown."""
        value = self.value(Fact.ENGINE)
        return None if value is None else Engine(str(value))

    @property
    def requested(self) -> dict[Setting, Value]:
        """The settings that the user asked for, or the framework's defaults."""
        settings = {
            name: known.value for name, known in self.known.items() if isinstance(name, Setting)
        }
        return settings | {name: known.value for name, known in self.wanted.items()}

    @property
    def micro_steps(self) -> int | None:
        """Samples per rank in an optimizer step, as asked for; None if unknown."""
        micro, steps = (self.requested.get(name) for name in BATCH)
        return None if micro is None or steps is None else int(micro) * int(steps)

    def is_pinned(self, setting: Setting) -> bool:
        """Whether the user asked for the setting explicitly instead of leaving it to a default."""
        known = self.known.get(setting)
        explicit = known is not None and known.origin > Origin.PRESET
        return setting in self.wanted or explicit

    def is_certain(self, name: Name) -> bool:
        """Whether a value is known by more than an assumption or the script's source."""
        known = self.known.get(name)
        is_known = known is not None and known.origin.certainty > Certainty.DERIVED
        return name in self.wanted or is_known

    @property
    def is_length_stated(self) -> bool:
        """Whether the user has stated the length of sequences, or a worker has seen it.

        A script's own value, often 32,768 tokens, is a limit that the data may stay far below.
        """
        return self.is_certain(Fact.SEQUENCE_LENGTH)

    @property
    def facts(self) -> dict[Name, Value]:
        """The facts that are known."""
        facts: dict[Name, Value] = {Fact.FRAMEWORK: self.framework.value}
        for name, known in self.known.items():
            if isinstance(name, Fact):
                facts[name] = known.value
        return facts

    def without(self, names: Collection[str]) -> Workload:
        """This workload without its statements on these names."""
        known = {name: known for name, known in self.known.items() if name not in names}
        return replace(self, known=MappingProxyType(known))

    def informed(self, statements: Iterable[Statement]) -> Workload:
        """This workload with further statements; on each name the higher origin takes precedence.

        A statement of equal origin replaces the earlier one, like the last of two equal flags.
        """
        known = dict(self.known)
        for name, statement in statements:
            earlier = known.get(name)
            if earlier is None or earlier.origin <= statement.origin:
                known[name] = statement
        return replace(self, known=MappingProxyType(known))
