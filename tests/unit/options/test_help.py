"""The help of the command line is whole."""

from __future__ import annotations

from safe_launch.commands import command_line
from safe_launch.options.parser import parser
from support.stacks import ROOT


def test_the_help_names_every_command() -> None:
    """Both how it is called and what it does, and the page of commands has it as well."""
    page = (ROOT / "docs/using/commands.md").read_text()
    text = parser().format_help()
    for name in (*command_line.COMMANDS, "plan"):
        assert f"\n       safe-launch {name}" in text
        assert f"\n  {name} " in text
        assert f"| `safe-launch {name}" in page
