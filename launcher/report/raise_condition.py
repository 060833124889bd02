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
BARRIERS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef),
    *(ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case),
)
"""Statements with a reason of their own to run what is in them."""


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
    except (OSError, ValueError, IndexError, SyntaxError, RecursionError, MemoryError):
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
    for at, (parent, child) in reversed([*enumerate(path)]):
        if isinstance(parent, BARRIERS):
            return ""
        if isinstance(parent, ast.If):
            return _condition([parent for parent, _ in path[: at + 1]], child, line)
    return ""


def _condition(parents: list[ast.AST], child: ast.AST, line: int) -> str:
    """What the innermost `if` of parents had to find for its child to run."""
    innermost = parents[-1]
    assert isinstance(innermost, ast.If)
    if child in innermost.body:
        return _shown([innermost.test], innermost.body, line)
    tests = [innermost.test]
    for outer in reversed(parents[:-1]):
        if not isinstance(outer, ast.If) or outer.orelse != [innermost]:
            break
        tests.insert(0, outer.test)
        innermost = outer
    body = parents[-1].orelse if isinstance(parents[-1], ast.If) else []
    return _shown([_negated(test) for test in tests], body, line)


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def _shown(tests: list[ast.expr], body: list[ast.stmt], line: int) -> str:
    """The joined tests; empty if the body changes what they read, or any script meets them."""
    names = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
    before = (n for statement in body for n in ast.walk(statement) if isinstance(n, ast.Name))
    changed = {n.id for n in before if isinstance(n.ctx, ast.Store) and n.lineno <= line}
    if names & changed or "__name__" in names:
        return ""
    return ast.unparse(tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests))


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last
