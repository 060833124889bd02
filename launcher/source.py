"""Searches in the user's source files for the lines that a known failure is about."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .failure import Spot

REDUCTIONS = ("sum", "mean", "norm", "square", "pow", "abs")
DETACHED = {"grad", "data", "detach"}
PARAMETER_ITERATORS = ("parameters", "named_parameters")


def spots(search: str, paths: Sequence[str]) -> tuple[Spot, ...]:
    """What the search of that name finds in the files; files that can't be parsed are skipped."""
    found: list[Spot] = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            continue
        lines = text.splitlines()
        numbers = dict.fromkeys(SEARCHES[search](tree))
        found += [Spot(path, number, lines[number - 1].strip()) for number in numbers]
    return tuple(found)


def parameter_reductions(tree: ast.AST) -> Iterator[int]:
    """Lines that reduce parameters outside a forward pass: `p.sum() for p in m.parameters()`.

    Covers comprehensions, generator expressions and `for` loops over `parameters()` or
    `named_parameters()` whose body reduces the loop's own variable.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            for clause in node.generators:
                if _iterates_parameters(clause.iter):
                    yield from _reductions(node.elt, _names(clause.target))
        elif isinstance(node, ast.For) and _iterates_parameters(node.iter):
            for statement in node.body:
                yield from _reductions(statement, _names(node.target))


def _iterates_parameters(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in PARAMETER_ITERATORS
        for part in ast.walk(node)
    )


def _names(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}


def _reductions(node: ast.AST, names: set[str]) -> Iterator[int]:
    """Lines of calls `name.sum()` and `torch.sum(name)` for the given names.

    Reductions of gradients and of detached values (a gradient's norm, say) take no part in the
    graph and are left out.
    """
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr in REDUCTIONS
        ):
            leaves = list(ast.walk(part))
            names_used = {leaf.id for leaf in leaves if isinstance(leaf, ast.Name)}
            attributes = {leaf.attr for leaf in leaves if isinstance(leaf, ast.Attribute)}
            if names_used & names and not attributes & DETACHED:
                yield part.lineno


SEARCHES: dict[str, Callable[[ast.AST], Iterator[int]]] = {
    "parameter_reductions": parameter_reductions,
}
"""The searches that an entry's `points_at` may name."""
