"""Options of torchrun and deepspeed, for parser, help and documentation."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.errors import LaunchError
from .foreign_options import NODES, TABLE
from .option import Option, RefusedOption

OPTIONS: Mapping[str, Option] = {option.key: option for option in TABLE}
"""All options by their keys."""
ELSEWHERE = {option.key for option in NODES} | {"nproc_per_node"}
"""Options whose PET_* variables are read with the scheduler's."""
YES, NO = ("true", "t", "yes", "y"), ("false", "f", "no", "n")


def add(group: argparse._ActionsContainer, name: str, **how: Any) -> None:
    """Adds an option in all its spellings to a parser.

    Args:
        group: a parser, or a group of its options.
        name: a key of `OPTIONS`.
        how: arguments of argparse's `add_argument`; none for a switch.
    """
    option = OPTIONS[name]
    words = {"metavar": option.value} if option.value else {"action": "store_true"}
    group.add_argument(*option.spellings, **{"dest": name, "help": option.does, **words, **how})


def add_refusals(parser: argparse.ArgumentParser) -> None:
    """Adds unsupported options, to refuse them by name."""
    for option in TABLE:
        if option.instead:
            # argparse needs a number of values; the metavar of a hidden option doesn't matter.
            parser.add_argument(
                *option.spellings,
                action=RefusedOption,
                nargs=None if option.value else 0,
                metavar=option.instead,
                help=argparse.SUPPRESS,
            )


def by_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Options in the set PET_* variables, as words, as torchrun reads them.

    An empty variable is ignored.

    Raises:
        LaunchError: a switch is neither on nor off.
    """
    for option in TABLE:
        variable = f"PET_{option.key.upper()}"
        text = environment.get(variable, "")
        if not option.variable or option.key in ELSEWHERE or not text:
            continue
        if option.value:
            yield f"{variable}={text}", [f"{option.name}={text}"]
        elif _is_on(text, variable):
            yield f"{variable}={text}", [option.name]


def _is_on(text: str, variable: str) -> bool:
    if text.lower() in (*YES, *NO):
        return text.lower() in YES
    try:
        return bool(int(text))
    except ValueError:
        raise LaunchError(f"{variable}={text} is neither 1 nor 0") from None
