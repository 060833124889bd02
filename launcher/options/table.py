"""The options of torchrun and deepspeed, each told once: for the parser, its help, and a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.errors import ExitCode, LaunchError
from . import deepspeed, torchrun
from .option import Option, Refusal

TABLE: tuple[Option, ...] = (*torchrun.TABLE, *deepspeed.TABLE)
OPTIONS: Mapping[str, Option] = {one.key: one for one in TABLE}
"""All of them by their names for programs."""
ELSEWHERE = {one.key for one in torchrun.NODES} | {"nproc_per_node"}
"""Options whose PET_* variables are read together with what a scheduler says."""
YES, NO = ("true", "t", "yes", "y"), ("false", "f", "no", "n")


def add(group: argparse._ActionsContainer, name: str, **how: Any) -> None:
    """Adds an option in all its spellings to a parser.

    Args:
        group: a parser, or a group of its options.
        name: as in `OPTIONS`.
        how: what argparse is to do with it; nothing for a switch.
    """
    one = OPTIONS[name]
    words = {"metavar": one.value} if one.value else {"action": "store_true"}
    group.add_argument(*one.spellings, **{"dest": name, "help": one.does, **words, **how})


def add_refusals(parser: argparse.ArgumentParser) -> None:
    """Adds what isn't taken, so that it is refused by its name."""
    for one in TABLE:
        if one.instead:
            # argparse wants a number of values; the metavar of what isn't shown is free.
            parser.add_argument(
                *one.spellings,
                action=Refusal,
                nargs=None if one.value else 0,
                metavar=one.instead,
                help=argparse.SUPPRESS,
            )


def by_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """The options that PET_* variables give, as torchrun reads them: the variable, and the words.

    An empty variable says nothing.

    Raises:
        LaunchError: a switch is neither on nor off.
    """
    for one in TABLE:
        variable = f"PET_{one.key.upper()}"
        text = environment.get(variable, "")
        if not one.variable or one.key in ELSEWHERE or not text:
            continue
        if one.value:
            yield f"{variable}={text}", [f"{one.name}={text}"]
        elif _is_on(text, variable):
            yield f"{variable}={text}", [one.name]


def _is_on(text: str, variable: str) -> bool:
    if text.lower() in (*YES, *NO):
        return text.lower() in YES
    try:
        return bool(int(text))
    except ValueError:
        problem = f"{variable}={text} is neither 1 nor 0"
        raise LaunchError(ExitCode.USAGE, problem) from None
