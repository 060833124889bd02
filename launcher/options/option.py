"""Describes options of torchrun and deepspeed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..core.errors import LaunchError

TORCHRUN, DEEPSPEED = "torchrun", "deepspeed"


@dataclass(frozen=True, slots=True)
class Option:
    """An option of torchrun or deepspeed.

    Attributes:
        name: with dashes, as in `--node-rank`; `--node_rank` is the same.
        does: its effect in safe-launch, in a few words.
        value: the placeholder of its value; empty for a switch.
        tools: the tools with this option.
        short: other names.
        differs: differences from the original; empty if none.
        instead: the reason for refusal, and the alternative; empty if supported.
        variable: whether torchrun falls back to a PET_* variable.
    """

    name: str
    does: str = ""
    value: str = ""
    tools: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    differs: str = ""
    instead: str = ""
    variable: bool = False

    @property
    def key(self) -> str:
        """Its key: `node_rank`."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All spellings: every name with dashes and with underscores."""
        letters = [spelling for spelling in self.short if not spelling.startswith("--")]
        names = [spelling for spelling in (self.name, *self.short) if spelling.startswith("--")]
        both = [
            f"--{spelling}" for name in names for spelling in (name[2:], name[2:].replace("-", "_"))
        ]
        return tuple(dict.fromkeys([*letters, *both]))


def named_path(text: str) -> Path:
    """Parses a path.

    Raises:
        argparse.ArgumentTypeError: the path is empty, e.g. from an unset variable.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: is a variable unset?")
    return Path(text)


class RefusedOption(argparse.Action):
    """The action of an unsupported option."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        """Refuses the option with the reason and the alternative.

        Raises:
            LaunchError: always.
        """
        del parser, namespace, values
        raise LaunchError(f"{option_string} {self.metavar}")
