"""Searches in the user's source files for the lines that a known failure is about."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .failure import Spot

REDUCTIONS = ("sum", "mean", "norm", "square", "pow", "abs")
DETACHED = {"grad", "data", "detach"}
CUTS = ("item", "tolist", "detach")
"""Methods whose result takes no part in the graph."""
WITHOUT_GRAPH = ("no_grad", "inference_mode")
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
    cut = {id(part) for node in ast.walk(tree) if _is_cut(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            for clause in node.generators:
                if _iterates_parameters(clause.iter):
                    yield from _reductions(node.elt, _names(clause.target), cut)
        elif isinstance(node, ast.For) and _iterates_parameters(node.iter):
            for statement in node.body:
                yield from _reductions(statement, _names(node.target), cut)


def _iterates_parameters(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in PARAMETER_ITERATORS
        for part in ast.walk(node)
    )


def _is_cut(node: ast.AST) -> bool:
    """Whether what a node computes takes no part in the graph."""
    if isinstance(node, ast.With):
        around = [item.context_expr for item in node.items]
    elif isinstance(node, ast.FunctionDef):
        around = node.decorator_list
    else:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CUTS
        )
    return any(name in ast.unparse(one) for one in around for name in WITHOUT_GRAPH)


def _names(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}


def _reductions(node: ast.AST, names: set[str], cut: set[int]) -> Iterator[int]:
    """Lines of calls `name.sum()` and `torch.sum(name)` for the given names.

    Reductions of gradients and of detached values (a gradient's norm, say) take no part in the
    graph and are left out.
    """
    for part in ast.walk(node):
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr in REDUCTIONS
            and id(part) not in cut
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
