"""Rewrites argparse's errors in the user's words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..core.nearest import meant
from ..core.shortened import shortened
from . import accelerate_options

CHOICE = re.compile(r"argument (\S+): invalid choice: (.+) \(choose from (.+)\)", re.DOTALL)
VALUE = re.compile(r"argument (\S+): invalid (\S+) value: (.+)", re.DOTALL)
LACKING = re.compile(r"argument (\S+): expected one argument")
OTHER = re.compile(r"argument (-\S+): (.+)", re.DOTALL)
"""argparse's messages (https://github.com/python/cpython/blob/3.11/Lib/argparse.py)."""
LONGEST = 60
"""Maximum characters to show of a value."""
KINDS = {"int": "a whole number", "float": "a number"}
"""Descriptions of option values, by names of Python types."""


def sentence(message: str) -> str:
    """Argparse's message without internal names."""
    if match := CHOICE.fullmatch(message):
        value, known = shortened(match[2].strip("'\""), LONGEST), ", ".join(_choices(match[3]))
        return f"{_typed(match[1])}: `{value}` is none of {known}".removeprefix(": ")
    if match := VALUE.fullmatch(message):
        value = shortened(match[3].strip("'\""), LONGEST)
        kind = KINDS.get(match[2])
        problem = f"`{value}` isn't {kind}" if kind else f"`{value}` can't be read"
        return f"{_typed(match[1])}: {problem}".removeprefix(": ")
    if match := LACKING.fullmatch(message):
        return f"{_typed(match[1])}: a value is needed"
    if match := OTHER.fullmatch(message):
        return f"{_typed(match[1])}: {match[2]}"
    return message


def hint(message: str, known: Iterable[str]) -> str:
    """The likely spelling of a misspelled word, or its equivalent; empty if unknown."""
    if match := CHOICE.fullmatch(message):
        return meant(match[2].strip("'\""), _choices(match[3]))
    word = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
    similar = meant(word, known) if word.startswith("--") else ""
    return accelerate_options.hint(word) or similar


def _choices(listed: str) -> list[str]:
    return [word.strip("'\"") for word in listed.split(", ")]


def _typed(name: str) -> str:
    """An option's first long name; empty for positional words."""
    names = name.split("/")
    if not names[0].startswith("-"):
        return ""
    return next((each for each in names if each.startswith("--")), names[0])
