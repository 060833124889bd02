"""What is about to be trained, as far as it is known, and where each value was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from .model import Model
from .settings import Engine, Fact, Framework, Name, Origin, Setting, Value


@dataclass(frozen=True, slots=True)
class Known:
    """A value and where it was read.

    Attributes:
        value: the value.
        origin: rank of the source.
        source: the source in words, e.g. `zero3.json: zero_optimization.stage`.
    """

    value: Value
    origin: Origin
    source: str


Statement = tuple[Name, Known]
"""One thing that a reader found."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Settings, facts and versions of a training run; what is absent is unknown.

    Attributes:
        framework: who owns the training loop.
        known: settings as the user asked for them, and facts, by name.
        versions: installed versions of the frameworks, by distribution name.
        notes: what a reader saw and could not use, in words.
        model: the shape of the model as it lies on disk, or as a worker saw it; None where unknown.
    """

    framework: Framework = Framework.NONE
    known: Mapping[Name, Known] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    model: Model | None = None

    def value(self, name: Name) -> Value | None:
        """The value of a setting or fact; None where unknown."""
        known = self.known.get(name)
        return None if known is None else known.value

    @property
    def engine(self) -> Engine | None:
        """Who reduces the gradients; None where unknown."""
        value = self.value(Fact.ENGINE)
        return None if value is None else Engine(str(value))

    @property
    def asked(self) -> dict[Setting, Value]:
        """The settings that the user asked for or that the framework defaults to."""
        return {
            name: known.value for name, known in self.known.items() if isinstance(name, Setting)
        }

    @property
    def facts(self) -> dict[Name, Value]:
        """The facts that are known."""
        return {name: known.value for name, known in self.known.items() if isinstance(name, Fact)}

    def informed(self, statements: Iterable[Statement]) -> Workload:
        """This workload with further statements; of two on one thing the higher origin holds.

        A statement of equal origin replaces the earlier one, as the last of two equal flags does.
        """
        known = dict(self.known)
        for name, statement in statements:
            earlier = known.get(name)
            if earlier is None or earlier.origin <= statement.origin:
                known[name] = statement
        return replace(self, known=MappingProxyType(known))
