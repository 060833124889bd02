"""The command line's help is complete."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from safe_launch.commands.registry import COMMANDS, launch_parser
from support.pages.commands import man_page, with_settings, with_table
from support.stacks import ROOT


def test_the_help_names_every_command() -> None:
    """The help and the docs' page have each command's usage and purpose."""
    page = (ROOT / "docs/using/commands.md").read_text()
    assert page == with_table(page), "run scripts/options-docs"
    text = launch_parser().format_help()
    for name in COMMANDS:
        assert f"\n       safe-launch {name}" in text
        assert f"\n  {name} " in text
        assert f"| `safe-launch {name}" in page


def test_the_docs_name_every_setting() -> None:
    """scripts/options-docs writes the list of their names."""
    page = (ROOT / "docs/using/configuration.md").read_text()
    assert page == with_settings(page), "run scripts/options-docs"
    assert page == with_settings(page.replace("`offload`,", "`unloading`,"))


def test_the_manual_page_is_up_to_date() -> None:
    """scripts/options-docs writes it, and a formatter accepts it."""
    path = ROOT / "man/safe-launch.1"
    assert path.read_text() == man_page(), "run scripts/options-docs"
    if shutil.which("groff") is None:
        pytest.skip("groff isn't installed")
    command = ["groff", "-man", "-ww", "-Tutf8", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r".\x08", "", done.stdout).replace("\u2010", "-").replace("\u2212", "-")
    assert "--hang-timeout" in shown
    assert "the script ran to its end on every rank" in " ".join(shown.split())
