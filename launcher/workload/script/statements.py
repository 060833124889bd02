"""The statements and calls of a source file, each with its scope and with what it depends on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .source_files import SourceFile

Function = ast.FunctionDef | ast.AsyncFunctionDef
LEAVING = (ast.Return, ast.Continue, ast.Break)
"""Statements after which the rest of a block isn't reached."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a statement to be reached.

    Attributes:
        test: the expression; None where nothing tells, as with the handler of an exception.
        holds: whether it has to be true, or false.
    """

    test: ast.expr | None
    holds: bool = True


@dataclass(frozen=True)
class Site:
    """A statement or call where it stands.

    Attributes:
        node: the statement or call.
        file: the file.
        functions: those around it, the innermost last; empty at the file's top level.
        conditions: within the innermost function, the outermost first.
    """

    node: ast.stmt | ast.expr
    file: SourceFile
    functions: tuple[Function, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def inside(self, test: ast.expr | None, *, holds: bool = True) -> Site:
        """The same under one more condition."""
        return replace(self, conditions=(*self.conditions, Condition(test, holds)))


def sites(file: SourceFile, is_reached: Callable[[str], bool]) -> Iterator[Site]:
    """The statements and calls of a file in the order in which they stand.

    Args:
        file: the file.
        is_reached: whether a function or class at its top level is wanted.
    """
    body = [
        node
        for node in file.tree.body
        if not isinstance(node, Function | ast.ClassDef) or is_reached(node.name)
    ]
    if body:
        yield from _block(body, Site(body[0], file))


def _block(body: Sequence[ast.stmt], around: Site) -> Iterator[Site]:
    for node in body:
        yield from _statement(node, replace(around, node=node))
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], LEAVING):
            around = around.inside(node.test, holds=False)


def _statement(node: ast.stmt, here: Site) -> Iterator[Site]:
    yield here
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            functions = (*here.functions, node)
            yield from _block(node.body, replace(here, functions=functions, conditions=()))
        case ast.ClassDef():
            yield from _block(node.body, here)
        case ast.If(test=test, body=body, orelse=orelse):
            yield from _calls(test, here)
            yield from _block(body, here.inside(test))
            yield from _block(orelse, here.inside(test, holds=False))
        case ast.For(iter=over) | ast.AsyncFor(iter=over):
            yield from _calls(over, here)
            yield from _block([*node.body, *node.orelse], here)
        case ast.While(test=test):
            yield from _calls(test, here)
            yield from _block([*node.body, *node.orelse], here)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                yield from _calls(item.context_expr, here)
            yield from _block(node.body, here)
        case ast.Try():
            yield from _block([*node.body, *node.orelse, *node.finalbody], here)
            for handler in node.handlers:
                yield from _block(handler.body, here.inside(None))
        case ast.Match(cases=cases):
            for case in cases:
                yield from _block(case.body, here.inside(None))
        case _:
            yield from _calls(node, here)


def _calls(node: ast.AST, here: Site) -> Iterator[Site]:
    """The calls in a statement or expression, those that are arguments after what takes them."""
    if isinstance(node, ast.Call):
        yield replace(here, node=node)
    if isinstance(node, ast.IfExp):
        yield from _calls(node.test, here)
        yield from _calls(node.body, here.inside(node.test))
        yield from _calls(node.orelse, here.inside(node.test, holds=False))
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, here)
