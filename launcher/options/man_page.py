"""The manual page, man/safe-launch.1, from the parser that reads the options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ..core.errors import MEANINGS
from ..core.private_names import ACTIONS
from .parser import COMMANDS_HELP, USAGE, parser

FILES = (
    ("~/.cache/safe-launch/runs", "the run directories; --log-dir names another folder"),
    ("~/.cache/safe-launch/lessons", "what corrected runs have taught"),
    ("~/.config/safe-launch/config.yaml", "defaults for options; pyproject.toml may have more"),
    ("/etc/safe-launch/config.yaml", "the same for all users of a host"),
)


def man_page() -> str:
    """The whole page, in the macros of man(7)."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    known = parser()
    yield '.TH SAFE-LAUNCH 1 "" "safe-launch"'
    yield from (".SH NAME", r"safe\-launch \- launches distributed trainings, and corrects them")
    yield from (".SH SYNOPSIS", ".nf", *(_text(line.strip()) for line in USAGE.splitlines()), ".fi")
    yield from (".SH DESCRIPTION", _text(str(known.description)))
    yield ".SH COMMANDS"
    for line in COMMANDS_HELP.splitlines():
        name, _, does = line.strip().partition(" ")
        yield from _item(name, does.strip())
    yield ".SH OPTIONS"
    for action in ACTIONS.of(known):
        if action.help != argparse.SUPPRESS:
            value = "" if action.nargs == 0 else f" {_value(action)}"
            yield from _item(", ".join(action.option_strings) + value, action.help or "")
    yield ".SH EXIT STATUS"
    for code, meaning in MEANINGS.items():
        yield from _item(str(code.value), meaning)
    yield from _item("128 + N", "signal N has ended the launcher or the failed worker")
    yield from _item("others", "the failed worker's own")
    yield ".SH FILES"
    for name, what in FILES:
        yield from _item(name, what)
    yield from (".SH SEE ALSO", _text("torchrun, deepspeed, accelerate launch"))


def _value(action: argparse.Action) -> str:
    if action.choices:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def _item(head: str, text: str) -> tuple[str, str, str]:
    return ".TP", rf"\fB{_text(head)}\fR", _text(" ".join(text.replace("%%", "%").split()))


def _text(text: str) -> str:
    """A text without what roff would read as its own."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
