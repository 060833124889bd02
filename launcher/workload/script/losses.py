"""Finds losses that distributed runs get wrong: of parameters, in several passes, scaled twice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from .calls import ASIDE, called

REDUCTIONS = ("sum", "mean", "norm", "square", "pow", "abs")
FLATTENED = ("view", "reshape", "flatten", "ravel")
DETACHED = {"grad", "data", "shape", "size", "numel", "isnan", "isinf", "isfinite"}
"""Attributes and functions whose result isn't part of the graph."""
CUT_METHODS = {"item", "tolist", "detach", "numpy"}
CUT_FUNCTIONS = {"float", "int", "bool", "str", "round", "format", "print"}
"""Attributes and functions that detach a value from the graph."""
LOGGERS = {"add_scalar", "add_histogram", "debug", "info", "log", "warning", "write"}
"""Methods that report a value, if their first argument is a text or a mapping."""
TEXTS = (ast.Constant, ast.JoinedStr, ast.Dict)
WITHOUT_GRAPH = ("no_grad", "inference_mode", "set_grad_enabled(False)", "GatheredParameters")
"""Contexts without a graph, or with gathered ZeRO-3 parameters."""
PARAMETER_ITERATORS = ("parameters", "named_parameters")
OTHERS = ("accelerator", "fabric", "accelerate")
"""Owners whose `backward` counts micro batches itself."""
ACCUMULATION = re.compile(r"accum|grad_acc|(^|_)gas(_|$|\()", re.IGNORECASE)
"""Names of the accumulation in an expression."""


def parameter_reductions(tree: ast.AST) -> Iterator[int]:
    """Lines that reduce parameters outside a forward pass: `p.sum() for p in m.parameters()`.

    Covers comprehensions, generator expressions and `for` loops over `parameters()` or
    `named_parameters()` whose body reduces the loop's own variable. Values that are only reported,
    in a log or a comparison, are left out.
    """
    cut = {id(part) for node in ast.walk(tree) if _is_detached(node) for part in ast.walk(node)}
    cut |= _only_reported(tree, cut)
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            for clause in node.generators:
                if _iterates_parameters(clause.iter):
                    yield from _reductions(node.elt, _names(clause.target), cut)
        elif isinstance(node, ast.For) and _iterates_parameters(node.iter):
            for statement in node.body:
                yield from _reductions(statement, _names(node.target), cut)


def _only_reported(tree: ast.AST, cut: set[int]) -> set[int]:
    """Ids of the parts of values that only detached expressions use, except for losses."""
    used = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in cut
    }
    return {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in [node.targets[0] if isinstance(node, ast.Assign) else node.target]
        if isinstance(target, ast.Name) and target.id not in used and "loss" not in target.id
        for part in ast.walk(node)
    }


def _iterates_parameters(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in PARAMETER_ITERATORS
        for part in ast.walk(node)
    )


def _is_detached(node: ast.AST) -> bool:
    """Whether the result of a node isn't part of the graph."""
    match node:
        case ast.With(items=items):
            around = [item.context_expr for item in items]
        case ast.FunctionDef(name=name, decorator_list=decorators):
            if ASIDE.search(name):
                return True
            around = decorators
        case ast.Compare() | ast.JoinedStr():
            return True
        case ast.Call(args=arguments):
            name = called(node)
            if isinstance(node.func, ast.Name):
                return name in CUT_FUNCTIONS
            is_reported = isinstance(arguments[0], TEXTS) if arguments else False
            return name in CUT_METHODS or (name in LOGGERS and is_reported)
        case _:
            return False
    return any(name in ast.unparse(context) for context in around for name in WITHOUT_GRAPH)


def _names(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}


def _reductions(node: ast.AST, names: set[str], cut: set[int]) -> Iterator[int]:
    """Lines of calls `name.sum()` and `torch.sum(name)`, and of `name.view(-1)[0]`.

    Reductions of gradients and of detached values (e.g. a gradient's norm) aren't part of the graph
    and are left out.
    """
    for part in ast.walk(node):
        if id(part) not in cut and _is_reduction(part):
            leaves = [leaf for leaf in ast.walk(part) if id(leaf) not in cut]
            names_used = {leaf.id for leaf in leaves if isinstance(leaf, ast.Name)}
            attributes = {leaf.attr for leaf in leaves if isinstance(leaf, ast.Attribute)}
            if names_used & names and not attributes & DETACHED:
                yield part.lineno


def _is_reduction(node: ast.AST) -> TypeGuard[ast.expr]:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in REDUCTIONS
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in FLATTENED
    return False


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
