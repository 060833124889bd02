"""The input of the readers: a script's flags, its imports, the installed versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.settings import Origin

PARSERS = {"HfArgumentParser", "TrlParser"}
"""Scripts that use one of these take all arguments from the command line, or defaults."""

TRUE = ("yes", "true", "t", "y", "1")
FALSE = ("no", "false", "f", "n", "0")
"""The words that `string_to_bool` of transformers/hf_argparser.py reads as true and false."""


@dataclass(frozen=True, slots=True)
class Given:
    """The value of a flag or configuration key, and its source.

    Attributes:
        value: text from a command line, or a typed value from a file; None for a bare flag.
        origin: flag or configuration file.
        source: the place in words.
        words: on a command line, everything up to the next flag.
    """

    value: Any
    origin: Origin
    source: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """The input of the readers.

    Attributes:
        flags: the script's flags, by name with underscores.
        names: modules that the script imports and names that it imports from them.
        versions: installed versions of the frameworks.
        environment: the launcher's environment, which the workers inherit.
        world: the number of workers on all nodes.
        notes: what a reader saw and could not use, as sentences.
        owner: `swift`, `llamafactory` or `FlagEmbedding` where the script is one of theirs.
        program: path of the script, or name of the module.
    """

    flags: Mapping[str, Given]
    names: frozenset[str]
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    world: int
    notes: list[str] = field(default_factory=list)
    owner: str = ""
    program: str = ""

    @property
    def takes_all(self) -> bool:
        """Whether all arguments come from the command line, so that absent ones have defaults."""
        return bool(self.owner) or bool(self.names & PARSERS)

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
        if value < 1:
            self.notes.append(f"{given.source}: {given.value!r} isn't a positive whole number")
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
