"""Which names a statement binds or changes, and where the parameters of a function stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .statements import Function

CHANGING = {"append", "extend", "insert", "update", "pop", "remove", "setdefault"}
"""Methods that change a list or a dict."""


def parameters(function: Function) -> list[str]:
    """The names of a function's parameters in their order, but for those that collect others."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in every]


def argument_of(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call gives a parameter; None where it leaves it to the default, or may do so."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    names = parameters(function)
    is_bound = names[:1] in (["self"], ["cls"])
    place = names.index(name) - is_bound
    return call.args[place] if 0 <= place < len(call.args) and not is_spread(call) else None


def is_spread(call: ast.Call) -> bool:
    """Whether a call takes arguments from lists or dicts."""
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return starred or any(word.arg is None for word in call.keywords)


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter; None where it has none."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        ),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next((default for argument, default in pairs if argument.arg == name), None)


def names_bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds, or whose value it changes."""
    match node:
        case ast.Assign(targets=targets):
            yield from (name for target in targets for name in _targets(target))
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield from _targets(target)
        case ast.For(target=target) | ast.AsyncFor(target=target):
            yield from _targets(target)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is not None:
                    yield from _targets(item.optional_vars)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))):
            if method in CHANGING:
                yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in names)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name


def _targets(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            yield name
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _targets(part)
        case ast.Starred(value=value):
            yield from _targets(value)
