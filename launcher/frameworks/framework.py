"""What is known of a framework without running it, and of a script that may be its program."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.hardware import VISIBLE
from ..core.setting_table import TOO_LARGE
from ..core.settings import Value
from ..core.workload import Known, Origin, Statement

PARSERS = {"HfArgumentParser", "TrlParser"}
"""Parsers that take all arguments from the command line, or their defaults."""

TRUE = ("yes", "true", "t", "y", "1")
FALSE = ("no", "false", "f", "n", "0")
"""True and false values of `string_to_bool` (transformers/hf_argparser.py)."""
OF_TRL = "SFT|DPO|KTO|ORPO|CPO|BCO|GRPO|RLOO|PPO|PPOv2|OnlineDPO|XPO|NashMD|GKD|PRM|Reward"
"""First parts of the names of trl's trainers and their arguments."""
TRAINING = re.compile(rf"(^|Seq2Seq|[a-z])TrainingArguments$|^({OF_TRL})Config$")
"""Names of TrainingArguments and trl's subclasses."""
FROM_ELSEWHERE = {"parse_json_file", "parse_yaml_file", "parse_dict"}
"""Methods of HfArgumentParser that don't read the command line."""
COMMAND_LINE = "parse_args_into_dataclasses"
"""Method that reads the command line; scripts with both kinds use it unless given a file."""


@dataclass(frozen=True, slots=True)
class Argument:
    """The value of a flag or configuration key, and its source.

    Attributes:
        value: text from a command line, or a typed value from a file; None for a bare flag.
        origin: flag or configuration file, or the script's own source.
        source: the place in words.
        words: on a command line, everything up to the next flag.
    """

    value: Any
    origin: Origin
    source: str
    words: tuple[str, ...] = ()

    @property
    def is_negative(self) -> bool:
        """Whether the value means off or none; a bare flag doesn't."""
        return self.value is not None and str(self.value).lower() in (*FALSE, "none", "")

    def known(self, value: Value) -> Known:
        """A value derived from this argument."""
        return Known(value, self.origin, self.source)


@dataclass(frozen=True, slots=True)
class Flags(Mapping[str, Argument]):
    """Arguments by name, with a record of lookups.

    Attributes:
        all: the arguments.
        looked_up: names that were looked up, present or not.
    """

    all: Mapping[str, Argument] = field(default_factory=dict)
    looked_up: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Argument:
        """The argument of that name."""
        self.looked_up.add(name)
        return self.all[name]

    def __iter__(self) -> Iterator[str]:
        """The names, without looking them up."""
        return iter(self.all)

    def __len__(self) -> int:
        """The number of arguments."""
        return len(self.all)


@dataclass(frozen=True, slots=True)
class SourceWords:
    """Words of the source; only the run shows their meaning.

    Attributes:
        set: names assigned anywhere: variables, attributes, fields, parameters, keywords of calls;
            and all strings, including keys and parser options.
        assigned: attributes of parsed arguments that it replaces, as in `args.bf16 = ...`.
        named: all names.
        is_all: whether no other user code or unknown package runs with the script.
    """

    set: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    is_all: bool = False


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
        replaced_defaults: the Trainer's arguments whose defaults it replaces.
        methods: the default `rlhf_type` of programs with a word in their path, by the word.
        adapts: it trains adapters unless asked otherwise, in a critic too.
        rewards_by_logits: its reward models compute the vocabulary's logits too.
        pixels: the environment variable of an image's maximum pixels.
        read: what its arguments state beyond these facts, given the script.
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
    replaced_defaults: frozenset[str] = frozenset()
    methods: Mapping[str, str] = field(default_factory=dict)
    adapts: bool = False
    rewards_by_logits: bool = False
    pixels: str = ""
    read: Callable[[Script], Iterable[Statement]] | None = None

    def default(self, name: str, value: Value) -> Known:
        """A value that an argument has by default."""
        whose = f"{self.name}'" if self.name.endswith("s") else f"{self.name}'s"
        return Known(value, Origin.DEFAULT, f"{whose} default of {name}")


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
        tree: its syntax; None if it can't be found.
    """

    flags: Flags = field(default_factory=Flags)
    names: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    world: int = 1
    notes: list[str] = field(default_factory=list)
    unmodelled: list[str] = field(default_factory=list)
    owner: FrameworkRow | None = None
    program: str = ""
    replaced: Mapping[str, Argument] = field(default_factory=dict)
    words: SourceWords = field(default_factory=SourceWords)
    tree: ast.Module | None = None

    @property
    def takes_all(self) -> bool:
        """Whether all arguments come from the command line, so absent ones have defaults."""
        named = self.words.named
        is_elsewhere = bool(named & FROM_ELSEWHERE) and COMMAND_LINE not in named
        is_parsed = bool(self.names & PARSERS) and any(map(TRAINING.search, named))
        return self.owner is not None or (is_parsed and not is_elsewhere)

    @property
    def may_split(self) -> bool:
        """Whether this is a single process that may see several devices."""
        listed = [self.environment.get(name, "") for name in VISIBLE]
        return self.world <= 1 and not any(names and "," not in names for names in listed)

    def replaces(self, *names: str) -> bool:
        """Whether the script's framework replaces defaults of these arguments of the Trainer."""
        return self.owner is not None and not self.owner.replaced_defaults.isdisjoint(names)

    def declares(self, name: str) -> bool:
        """Whether the source has its own parser with this option."""
        return bool({f"--{name}", f"--{name.replace('_', '-')}"} & self.words.set)

    def decides(self, *names: str) -> bool:
        """Whether the source may set one of these arguments; the value is queried at launch."""
        return not self.words.set.isdisjoint(names)

    def leaves(self, *names: str) -> bool:
        """Whether neither the command line nor the source mentions these arguments."""
        return not (self.decides(*names) or any(name in self.flags for name in names))

    def text(self, name: str) -> Argument | None:
        """A flag with a value; an empty one (`--deepspeed "$UNSET"`) counts as absent."""
        flag = self.flags.get(name)
        return flag if flag is not None and flag.value else None

    def first(self, *names: str) -> Argument | None:
        """The first of these flags that has a value."""
        return next(filter(None, map(self.text, names)), None)

    def first_number(self, *names: str) -> Argument | None:
        """The first of these flags that has a positive whole number."""
        return next(filter(None, map(self.number, names)), None)

    def on(self, *names: str) -> Argument | None:
        """The first of these boolean flags that is true."""
        switches = filter(None, map(self.boolean, names))
        return next((each for each in switches if each.value), None)

    def number(self, name: str) -> Argument | None:
        """A flag with a positive whole number; other values are noted and left to the script."""
        flag = self.flags.get(name)
        if flag is None or flag.value is None:
            return None
        try:
            value = int(str(flag.value))
        except ValueError:
            value = 0
        if value < 1 or value >= TOO_LARGE:
            why = "is too large" if value > 0 else "isn't a positive whole number"
            self.notes.append(f"{flag.source}: {flag.value!r} {why}")
            return None
        return Argument(value, flag.origin, flag.source)

    def boolean(self, name: str) -> Argument | None:
        """A boolean flag in any form, `--no_name` included; None for "auto"."""
        flag = self.flags.get(name)
        if flag is None:
            opposite = self.flags.get(f"no_{name}")
            if opposite is None or opposite.value is not None:
                return None
            return Argument(value=False, origin=opposite.origin, source=opposite.source)
        word = "true" if flag.value is None else str(flag.value).lower()
        if word == "auto":
            return None
        if word not in TRUE + FALSE:
            self.notes.append(f"{flag.source}: {flag.value!r} is neither true nor false")
            return None
        return Argument(word in TRUE, flag.origin, flag.source)
