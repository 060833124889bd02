"""Reads under which condition a line raised, from its source if that is on this machine."""

from __future__ import annotations

import ast
from pathlib import Path

from ..core.quotation import shortened
from ..evidence.failure_record import FailureRecord, Frame
from ..system import regular_files
from ..system.redaction import redacted

LONGEST_FILE = 2 << 20
"""Maximum bytes of a file to read."""
LONGEST = 200
"""Maximum characters of a condition to quote."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def condition_texts(record: FailureRecord) -> list[str]:
    """What held when the exception was raised, with its place; empty if unknown."""
    raised = next(iter(record.raised()), None)
    frame = raised.frame if raised is not None else None
    condition = condition_at(frame) if frame is not None else ""
    if frame is None or not condition:
        return []
    text = shortened(redacted(condition), LONGEST)
    return [f"`{text}` holds (line {frame.line} of {Path(frame.file).name})"]


def condition_at(frame: Frame) -> str:
    """The condition around a `raise` at a frame's line; empty for another line or another text."""
    try:
        content = regular_files.read(Path(frame.file), LONGEST_FILE)
        lines = content.decode().splitlines()
        if not frame.source or lines[frame.line - 1].strip() != frame.source.strip():
            return ""  # another version than the one that failed
        return _around(ast.parse(content), frame.line)
    except (OSError, ValueError, IndexError, SyntaxError, RecursionError):
        return ""


def _around(tree: ast.Module, line: int) -> str:
    """The innermost condition in a function that leads to the `raise` at a line."""
    path: list[tuple[ast.AST, ast.AST]] = []
    node: ast.AST = tree
    while not isinstance(node, ast.Raise):
        children = [child for child in ast.iter_child_nodes(node) if _covers(child, line)]
        if not children:
            return ""
        path.append((node, children[0]))
        node = children[0]
    for parent, child in reversed(path):
        if isinstance(parent, SCOPES):
            return ""
        if isinstance(parent, ast.If):
            test = ast.unparse(parent.test)
            return test if child in parent.body else f"not ({test})"
    return ""


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last
