"""The input of the readers: a script's flags, its imports, the installed versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core.certainty import Origin
from ...core.settings import TOO_LARGE
from .decisive_calls import ANYTHING
from .given import FALSE, PARSERS, TRUE, Flags, Given
from .own_parser import OwnParser


@dataclass(frozen=True, slots=True)
class Script:
    """The input of the readers.

    Attributes:
        flags: what is given to the script, else its own defaults, by name with underscores.
        names: modules that the script imports and names that it imports from them.
        versions: installed versions of the frameworks.
        environment: the launcher's environment, which the workers inherit.
        world: the number of workers on all nodes.
        notes: what a reader saw and could not use, as sentences.
        unmodelled: what the estimate of memory and time leaves out or assumes, as sentences.
        owner: `swift`, `llamafactory` or `FlagEmbedding` where the script is one of theirs.
        program: path of the script, or name of the module.
        parser: what its source says of its options.
    """

    flags: Flags
    names: frozenset[str]
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    world: int
    notes: list[str] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)
    owner: str = ""
    program: str = ""
    parser: OwnParser = field(default_factory=OwnParser)

    @property
    def takes_all(self) -> bool:
        """Whether all arguments come from the command line, so that absent ones have defaults."""
        if self.owner or self.parser.takes_training_arguments:
            return True
        return bool(self.names & PARSERS) and not self.parser.is_parsed

    def is_open(self, *names: str) -> bool:
        """Whether the source decides one of these arguments, in a way that isn't known."""
        return any(name in self.parser.unknown for name in names)

    def leaves(self, *names: str) -> bool:
        """Whether neither what is given nor the source says anything of these arguments."""
        return not (self.is_open(ANYTHING, *names) or any(name in self.flags for name in names))

    def text(self, name: str) -> Given | None:
        """A flag with a value; an empty one (`--deepspeed "$UNSET"`) counts as absent."""
        given = self.flags.get(name)
        return given if given is not None and given.value else None

    def number(self, name: str) -> Given | None:
        """A flag with a positive whole number; other values are noted and left to the script."""
        given = self.flags.get(name)
        if given is None or given.value is None:
            return None
        try:
            value = int(str(given.value))
        except ValueError:
            value = 0
        if value < 1 or value >= TOO_LARGE:
            if given.origin is Origin.SCRIPT:
                return None  # the script's way to say that there is none
            why = "is too large" if value > 0 else "isn't a positive whole number"
            self.notes.append(f"{given.source}: {given.value!r} {why}")
            return None
        return Given(value, given.origin, given.source)

    def boolean(self, name: str) -> Given | None:
        """A boolean flag in any form, `--no_name` included."""
        given = self.flags.get(name)
        if given is None:
            opposite = self.flags.get(f"no_{name}")
            if opposite is None or opposite.value is not None:
                return None
            return Given(value=False, origin=opposite.origin, source=opposite.source)
        word = "true" if given.value is None else str(given.value).lower()
        if word not in TRUE + FALSE:
            self.notes.append(f"{given.source}: {given.value!r} is neither true nor false")
            return None
        return Given(word in TRUE, given.origin, given.source)
