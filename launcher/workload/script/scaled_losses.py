"""Finds losses that a source scales in addition to its framework, or fails to scale."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

ACCUMULATION = re.compile(r"accum|grad_acc|(^|_)gas(_|$|\()", re.IGNORECASE)
"""Names of the accumulation in an expression."""
COUNT = "num_items_in_batch"
MEANS = {
    *("cross_entropy", "CrossEntropyLoss", "mse_loss", "MSELoss", "l1_loss", "L1Loss", "nll_loss"),
    *("NLLLoss", "BCEWithLogitsLoss", "binary_cross_entropy_with_logits", "BCELoss"),
}
"""torch losses that are means by default."""
OTHERWISE = re.compile(r"reduction|sum|mean|weight|scale|accum|num_", re.IGNORECASE)
"""Signs that a loss isn't a plain mean, or is scaled."""


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
    found = [at for name, at in _divisions(scope) if name in names and at <= line]
    return max(found, default=None)


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


def ignores_count(function: ast.FunctionDef) -> bool:
    """Whether a `compute_loss` returns a mean and ignores the number of items.

    True only for functions that take the number, don't pass it on, and return the model's loss or a
    torch loss, without a name or string about a sum or a scale.
    """
    arguments = {argument.arg for argument in function.args.args + function.args.kwonlyargs}
    body = [node for statement in function.body for node in ast.walk(statement)]
    names = {node.id for node in body if isinstance(node, ast.Name)}
    words = {node.attr for node in body if isinstance(node, ast.Attribute)}
    words |= {str(node.value) for node in body if isinstance(node, ast.Constant)}
    words |= names | {str(node.arg) for node in body if isinstance(node, ast.keyword)}
    passes_on = {each.arg for each in (function.args.kwarg,) if each is not None} & names
    is_scaled = any(isinstance(node, ast.BinOp | ast.AugAssign) for node in body)
    if COUNT not in arguments or passes_on or is_scaled or "super" in names:
        return False
    models = {
        *(node.attr for node in body if isinstance(node, ast.Attribute)),
        *(
            node.slice.value
            for node in body
            if isinstance(node, ast.Subscript)
            if isinstance(node.slice, ast.Constant)
        ),
    }
    return bool({"loss"} & models or MEANS & words) and not any(map(OTHERWISE.search, words))
