"""The job that a template is filled in for, by replacing unique lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TemplateJob:
    """The job at hand.

    Attributes:
        name: the job's name; None for the script's.
        nodes: the number of nodes.
        devices: accelerators of each node, with a worker for each.
        command: the words after `safe-launch`: its options, the script, the script's arguments.
    """

    name: str | None
    nodes: int
    devices: int
    command: tuple[str, ...]

    @property
    def label(self) -> str:
        """The job's name; by default that of the first word that looks like a script."""
        script = next((word for word in self.command if word.endswith(".py")), self.command[-1])
        return self.name or Path(script).stem


def shipped(path: str) -> str:
    """The text of a file of `scripts/`, which can be used unchanged."""
    return Path(str(files("safe_launch.scripts"))).joinpath(path).read_text("utf-8")


def filled(text: str, lines: Mapping[str, str]) -> str:
    """A shipped file's text with whole lines replaced; indentation is kept."""
    result = text.split("\n")
    for old, new in lines.items():
        (place,) = [number for number, line in enumerate(result) if line.strip() == old]
        result[place] = result[place].replace(old, new)
    return "\n".join(result)


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number, at least `least`."""

    def whole(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            problem = f"a whole number, at least {least}, is needed, not {text!r}"
            raise argparse.ArgumentTypeError(problem)
        return int(text)

    return whole


def word(text: str) -> str:
    """The type of an option that must be a single word."""
    if not text or text.split() != [text]:
        raise argparse.ArgumentTypeError(f"one word is needed, not {text!r}")
    return text
