"""Reads the source of the user's lines that are running, and the code of classes."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import linecache
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from ..callers import user_frames, user_values
from .graphs import PASSED_ON, before

LONGEST = 5_000
"""Maximum lines of a file to parse."""


def conditions() -> Iterator[tuple[ast.expr, Mapping[str, Any]]]:
    """The conditions under which the user's lines run, with the variables of their frames."""
    for (file, line), values in zip(user_frames(), user_values(), strict=False):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.If) and _is_within(line, node):
                yield node.test, values


def _is_within(line: int, node: ast.If) -> bool:
    end = node.end_lineno or node.lineno
    return (node.test.end_lineno or node.lineno) < line <= end or (
        line == node.lineno == end  # all in one line
    )


def is_written_division(loss: Any, names: Collection[str], number: int) -> bool:
    """Whether a script divides its loss by what one of the names has, and by nothing else.

    A division by the accumulation may be by the same number.

    Args:
        loss: a loss, after the division.
        names: parts of the names.
        number: what it is divided by.
    """
    made = before(loss.grad_fn, PASSED_ON)
    if made is None or made.name() != "DivBackward0":
        return False
    files = {file for file, _ in user_frames()}
    divided = [each for file in files for each in _divisions(parsed(file))]
    of_loss = [by for what, by in divided if "loss" in what]
    are_named = [any(name in by for name in names) for by in of_loss]
    return bool(of_loss) and all(are_named) and all(by != str(number) for _, by in divided)


def _divisions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a file divides, and by what, as source in small letters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield ast.unparse(node.left).lower(), ast.unparse(node.right).lower()
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield ast.unparse(node.target).lower(), ast.unparse(node.value).lower()


def assigned_through(attribute: str, name: str) -> int:
    """How many statements of the user's running files assign to `x.<attribute>.<name>`."""
    return sum(
        isinstance(target, ast.Attribute)
        and target.attr == name
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == attribute
        for file in {file for file, _ in user_frames()}
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


@functools.lru_cache(maxsize=8)
def parsed(file: str) -> ast.Module:
    """A file's syntax tree; empty if it can't be read."""
    lines = linecache.getlines(file)
    try:
        return ast.parse("".join(lines[:LONGEST]))
    except (SyntaxError, ValueError):  # it has changed since, or is cut off
        return ast.Module([], [])


def names_used(kind: type, methods: Sequence[str]) -> set[str]:
    """The names in the code of a class's methods, and of the instance's that they call."""
    codes = _codes(kind, methods)
    return {name for code in codes for name in _names_in(code)}


def attributes_read(kind: type, methods: Sequence[str]) -> set[str]:
    """The instance's attributes that a class's methods read, and those of its that they call."""
    codes = _codes(kind, methods)
    return {name for code in codes for name in _read_from(code, code.co_varnames[0])}


def _codes(kind: type, methods: Sequence[str]) -> list[CodeType]:
    """The code of methods, and of the instance's that they call."""
    codes: list[CodeType] = []
    coming = [*methods]
    while coming:
        method: Any = inspect.getattr_static(kind, coming.pop(), None)
        code = getattr(method, "__code__", None)
        if code is not None and code.co_argcount and code not in codes:
            codes.append(code)
            coming += _read_from(code, code.co_varnames[0])
    return codes


def _names_in(code: CodeType) -> Iterator[str]:
    """The names in code and in the generators within it."""
    yield from (*code.co_names, *code.co_freevars)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names_in(part)


def _read_from(code: CodeType, owner: str) -> Iterator[str]:
    """The attributes of a variable that code reads."""
    last = ""
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and last == owner:
            yield str(one.argval)
        is_variable = one.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))
        last = str(one.argval) if is_variable else ""
