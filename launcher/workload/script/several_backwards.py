"""Finds engines with several backward passes before one step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .unguarded_calls import ASIDE

OTHERS = ("accelerator", "fabric", "accelerate")
"""Owners whose `backward` counts micro batches itself."""


def several_backwards(tree: ast.AST) -> Iterator[int]:
    """Lines with `engine.backward(loss)` if several precede one `engine.step()`.

    Either the step follows a loop with the passes, or the passes follow one another.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ASIDE.search(node.name):
            continue
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from _in_block(block)


def _in_block(block: Sequence[ast.stmt]) -> Iterator[int]:
    """Searches the statements before an engine's step in one block."""
    passes: dict[str, list[int]] = {}
    for statement in block:
        steps = {engine for engine, _ in _calls(statement, "step")}
        for engine, lines in _passes(statement).items():
            if engine not in steps and engine.rpartition(".")[2] not in OTHERS:
                passes.setdefault(engine, []).extend(lines)
        for engine in steps:
            lines = passes.pop(engine, [])
            if len(lines) > 1:
                yield from dict.fromkeys(lines)


def _passes(statement: ast.stmt) -> dict[str, list[int]]:
    """The lines of each engine's backward passes, twice if in a loop.

    Of a condition, only the branch with more passes counts.
    """
    passes: dict[str, list[int]] = {}
    if isinstance(statement, ast.If):
        branches = [_passes_of(block) for block in (statement.body, statement.orelse)]
        for engine in {engine for branch in branches for engine in branch}:
            passes[engine] = max((branch.get(engine, []) for branch in branches), key=len)
        return passes
    times = 2 if isinstance(statement, ast.For | ast.While) else 1
    for engine, line in _calls(statement, "backward"):
        passes.setdefault(engine, []).extend([line] * times)
    return passes


def _passes_of(block: Sequence[ast.stmt]) -> dict[str, list[int]]:
    passes: dict[str, list[int]] = {}
    for statement in block:
        for engine, lines in _passes(statement).items():
            passes.setdefault(engine, []).extend(lines)
    return passes


def _calls(statement: ast.stmt, method: str) -> Iterator[tuple[str, int]]:
    """Owner and line of every call of a method, outside of nested functions."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name == method:
                if method == "step" or node.args:
                    yield ast.unparse(owner), node.lineno
