"""The registry of frameworks, and what follows from a row."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from safe_launch import frameworks
from safe_launch.catalogue.package_names import package_of_file, pip_name
from safe_launch.frameworks.framework import FrameworkRow
from safe_launch.frameworks.registry import COMMANDS, FRAMEWORKS, OF_PACKAGE
from safe_launch.logs.launcher_messages import is_of_launcher


def test_every_module_is_in_the_registry() -> None:
    """A row that nobody lists has no effect."""
    for path in Path(str(frameworks.__file__)).parent.glob("*.py"):
        module = import_module(f"safe_launch.frameworks.{path.stem}")
        rows = [value for value in vars(module).values() if isinstance(value, FrameworkRow)]
        assert all(any(row is each for each in FRAMEWORKS) for row in rows), path


def test_the_rows() -> None:
    """Patterns are valid, and each package, command and program has one framework."""
    for row in FRAMEWORKS:
        assert re.compile(row.in_log)
        assert re.compile(row.program)
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", row.repository)
        assert {OF_PACKAGE[name].name for name in row.packages} == {row.name}
    commands = COMMANDS.split("|")
    assert sorted(commands) == sorted(set(commands))


def test_what_follows_from_a_row() -> None:
    """Packages in a checkout, names for pip, and launchers' own exceptions."""
    assert package_of_file("axolotl/core/trainers/base.py") == "axolotl"
    assert [pip_name(name) for name in ("swift", "llmtuner", "pytorch_lightning")] == [
        *("ms-swift", "llamafactory", "pytorch_lightning")
    ]
    assert is_of_launcher(("/usr/bin/llamafactory-cli",))
    assert not is_of_launcher(("/usr/bin/tune",))  # it trains in its own process
