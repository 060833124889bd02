"""The description of an option of torchrun or deepspeed."""

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
        tools: the tools that have it.
        does: its effect here, in a few words.
        value: the placeholder of its value; empty for a switch.
        short: its other names.
        differs: how it differs from theirs; empty for no difference.
        instead: why it is refused, and what to use; empty if it is supported.
        variable: whether torchrun reads PET_* if it is absent.
    """

    name: str
    tools: tuple[str, ...]
    does: str
    value: str = ""
    short: tuple[str, ...] = ()
    differs: str = ""
    instead: str = ""
    variable: bool = False

    @property
    def key(self) -> str:
        """Its name for programs: `node_rank`."""
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
    """The path that an option's value is.

    Raises:
        argparse.ArgumentTypeError: it is empty, as of a variable that isn't set.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: is a variable unset?")
    return Path(text)


class RefusedOption(argparse.Action):
    """The action of an option that isn't supported."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        """Refuses the option, with the reason and what to use.

        Raises:
            LaunchError: always.
        """
        del parser, namespace, values
        raise LaunchError(f"{option_string} {self.metavar}")
