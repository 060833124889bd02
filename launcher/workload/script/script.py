"""The readers' input: a script's flags and imports, and installed versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core.setting_table import TOO_LARGE
from ...frameworks.framework import FrameworkRow
from .given import FALSE, PARSERS, TRUE, Flags, Given
from .source_words import SourceWords

TRAINING = re.compile(
    r"(^|Seq2Seq|[a-z])TrainingArguments$"
    r"|^(SFT|DPO|KTO|ORPO|CPO|BCO|GRPO|RLOO|PPO|PPOv2|OnlineDPO|XPO|NashMD|GKD|PRM|Reward)Config$"
)
"""Names of TrainingArguments and trl's subclasses."""
FROM_ELSEWHERE = {"parse_json_file", "parse_yaml_file", "parse_dict"}
"""Methods of HfArgumentParser that don't read the command line."""
COMMAND_LINE = "parse_args_into_dataclasses"
"""Method that reads the command line; scripts with both kinds use it unless given a file."""


@dataclass(frozen=True, slots=True)
class Script:
    """The input of the readers.

    Attributes:
        flags: arguments that the script doesn't replace, by name with underscores.
        names: modules that the script imports and names that it imports from them.
        versions: installed versions of the frameworks.
        environment: the launcher's environment, which the workers inherit.
        world: the number of workers on all nodes.
        notes: unusable values, as sentences.
        unmodelled: omissions and assumptions in the memory and time estimates, as sentences.
        owner: the framework that takes all arguments, if the script is one of its programs.
        program: path of the script, or name of the module.
        replaced: arguments that the script replaces.
        words: words of its source; empty for a framework's program.
    """

    flags: Flags
    names: frozenset[str]
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    world: int
    notes: list[str] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)
    owner: FrameworkRow | None = None
    program: str = ""
    replaced: Mapping[str, Given] = field(default_factory=dict)
    words: SourceWords = field(default_factory=SourceWords)

    @property
    def takes_all(self) -> bool:
        """Whether all arguments come from the command line, so absent ones have defaults."""
        named = self.words.named
        is_elsewhere = bool(named & FROM_ELSEWHERE) and COMMAND_LINE not in named
        is_parsed = bool(self.names & PARSERS) and any(map(TRAINING.search, named))
        return self.owner is not None or (is_parsed and not is_elsewhere)

    def declares(self, name: str) -> bool:
        """Whether the source has its own parser with this option."""
        return bool({f"--{name}", f"--{name.replace('_', '-')}"} & self.words.set)

    def decides(self, *names: str) -> bool:
        """Whether the source may set one of these arguments; the value is queried at launch."""
        return not self.words.set.isdisjoint(names)

    def leaves(self, *names: str) -> bool:
        """Whether neither the command line nor the source mentions these arguments."""
        return not (self.decides(*names) or any(name in self.flags for name in names))

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
            why = "is too large" if value > 0 else "isn't a positive whole number"
            self.notes.append(f"{given.source}: {given.value!r} {why}")
            return None
        return Given(value, given.origin, given.source)

    def boolean(self, name: str) -> Given | None:
        """A boolean flag in any form, `--no_name` included; None for "auto"."""
        given = self.flags.get(name)
        if given is None:
            opposite = self.flags.get(f"no_{name}")
            if opposite is None or opposite.value is not None:
                return None
            return Given(value=False, origin=opposite.origin, source=opposite.source)
        word = "true" if given.value is None else str(given.value).lower()
        if word == "auto":
            return None
        if word not in TRUE + FALSE:
            self.notes.append(f"{given.source}: {given.value!r} is neither true nor false")
            return None
        return Given(word in TRUE, given.origin, given.source)
