"""Finds losses that a source scales in addition to its framework."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

ACCUMULATION = re.compile(r"accum|grad_acc|(^|_)gas(_|$|\()", re.IGNORECASE)
"""Names of the accumulation in an expression."""


def divided_before(tree: ast.AST, line: int) -> int | None:
    """The line that divides a loss by the accumulation before `line`, `owner.backward(loss)`.

    Both lines must be in one function and use the same name. None if not found.
    """
    inner = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    scope = max(inner, key=lambda node: node.lineno, default=tree)
    names = {
        argument.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
        for argument in node.args
        if isinstance(argument, ast.Name)
    }
    lines = [at for name, at in _divisions(scope) if name in names and at <= line]
    return max(lines, default=None)


def _divisions(scope: ast.AST) -> Iterator[tuple[str, int]]:
    """Names assigned a value divided by the accumulation, with their lines."""
    for node in ast.walk(scope):
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Div(), value=divisor):
                pass
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Div(), right=divisor)
            ):
                pass
            case _:
                continue
        if ACCUMULATION.search(ast.unparse(divisor)):
            yield name, node.lineno
