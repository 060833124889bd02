"""Reads the source of the user's lines that are running."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Mapping
from typing import Any

from ..callers import user_frames, user_values

LONGEST = 5_000
"""Maximum lines of a file to parse."""


def conditions() -> Iterator[tuple[ast.expr, Mapping[str, Any]]]:
    """The conditions under which the user's lines run, with the variables of their frames."""
    for (file, line), values in zip(user_frames(), user_values(), strict=False):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.If) and _is_within(line, node):
                yield node.test, values


def _is_within(line: int, node: ast.If) -> bool:
    end = node.end_lineno or node.lineno
    return (node.test.end_lineno or node.lineno) < line <= end or (
        line == node.lineno == end  # all in one line
    )


def assigned_through(attribute: str, name: str) -> int:
    """How many statements of the user's running files assign to `x.<attribute>.<name>`."""
    return sum(
        isinstance(target, ast.Attribute)
        and target.attr == name
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == attribute
        for file in {file for file, _ in user_frames()}
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


@functools.lru_cache(maxsize=8)
def parsed(file: str) -> ast.Module:
    """A file's syntax tree; empty if it can't be read."""
    lines = linecache.getlines(file)
    try:
        return ast.parse("".join(lines[:LONGEST]))
    except (SyntaxError, ValueError):  # it has changed since, or is cut off
        return ast.Module([], [])
