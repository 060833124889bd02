"""The manual page, and the documentation's table of commands, made from the registry."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

from safe_launch.commands.registry import LAUNCH, ROWS, USAGE, launch_parser
from safe_launch.core.errors import MEANINGS
from safe_launch.core.private_names import ACTIONS
from safe_launch.core.settings import Setting

LISTED = "The names are those of `--set`: "
FILES = (
    ("~/.cache/safe-launch/runs", "the run directories; --log-dir names another folder"),
    ("~/.cache/safe-launch/lessons", "what corrected runs have taught"),
    ("~/.config/safe-launch/config.yaml", "defaults for options; pyproject.toml may have more"),
    ("/etc/safe-launch/config.yaml", "the same for all users of a host"),
)


def with_table(page: str) -> str:
    """A page of the documentation with its table of commands up to date.

    Args:
        page: the page; the table is in its first section, before the first `##`.
    """
    head, mark, rest = page.partition("\n## ")
    title = head.partition("\n")[0]
    lines = ["| command | what it does |", "|---|---|"]
    for command in (LAUNCH, *ROWS):
        usage = command.usage.replace("|", r"\|")
        lines.append(f"| `{usage}` | {command.summary}; [more]({command.page}) |")
    more = "`safe-launch COMMAND --help` lists what a command takes."
    table = "\n".join(lines)
    return f"{title}\n\n{table}\n\n{more}\n{mark}{rest}"


def with_settings(page: str) -> str:
    """A page of the documentation with its list of the settings' names up to date.

    Args:
        page: the page; the list is in the paragraph that begins with `LISTED`.
    """
    head, mark, rest = page.partition(f"\n{LISTED}")
    paragraph, end, rest = rest.partition("\n\n")
    _, dot, after = paragraph.partition(".")
    names = ", ".join(f"`{setting.value}`" for setting in Setting)
    words = f"{LISTED}{names}{dot}{after}".split()
    text = textwrap.fill(" ".join(words), 120, break_long_words=False, break_on_hyphens=False)
    return f"{head}\n{text}{end}{rest}" if mark else page


def man_page() -> str:
    """The whole page, in the macros of man(7)."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    known = launch_parser()
    yield '.TH SAFE-LAUNCH 1 "" "safe-launch"'
    yield from (".SH NAME", r"safe\-launch \- launches distributed trainings, and corrects them")
    yield from (".SH SYNOPSIS", ".nf", *(_text(line.strip()) for line in USAGE.splitlines()), ".fi")
    yield from (".SH DESCRIPTION", _text(str(known.description)))
    yield ".SH COMMANDS"
    for command in ROWS:
        yield from _item(command.usage, command.summary)
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
