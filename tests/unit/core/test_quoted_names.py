"""Names in messages are quoted, or `there is no file of arguments missing` results."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import safe_launch

SOURCE = Path(safe_launch.__file__).parent
OPENS = re.compile(r"(?:\b(?:there is no|has no|is no|knows no|names no|unknown) [a-z][\w -]*) $")
"""Words before a name that is missing or unknown."""


def _unquoted(text: ast.JoinedStr) -> list[str]:
    """The unquoted names in a message, right after such words."""
    found = []
    for before, value in zip(text.values, text.values[1:], strict=False):
        is_name = isinstance(value, ast.FormattedValue) and value.conversion != ord("r")
        if isinstance(before, ast.Constant) and is_name and OPENS.search(str(before.value)):
            found += [ast.unparse(text)] * (".join(" not in ast.unparse(value))  # numbers
    return found


def test_names_are_quoted() -> None:
    """Every message about something missing quotes the name."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                place = f"{path.relative_to(SOURCE)}:{node.lineno}"
                found += [f"{place}: {text}" for text in _unquoted(node)]
    assert found == []
