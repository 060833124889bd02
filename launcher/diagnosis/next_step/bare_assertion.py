"""Reads what a check without a message requires, and which settings it is about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...evidence.failure_record import Frame
from .step import Case, Step

HOLDERS = re.compile(r"(?:\w*_)?(?:args|arguments|config|cfg|conf|opts?|options|hparams)")
"""Names of objects that hold a run's settings."""
OF_MODEL = ("model_type", "architectures", "_name_or_path", "name_or_path")
"""Settings that a model has, not a run."""
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "isn't equal to",
    ast.NotEq: "is",
    ast.Lt: "isn't less than",
    ast.LtE: "is more than",
    ast.Gt: "isn't more than",
    ast.GtE: "is less than",
    ast.Is: "isn't",
    ast.IsNot: "is",
    ast.In: "isn't in",
    ast.NotIn: "is in",
}
"""What is the case if a comparison fails, in words between its sides."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """What a failed check shows.

    Attributes:
        sentence: what is the case there, without a full stop.
        settings: names of the settings that it reads.
        is_compared: whether it compares them with something.
    """

    sentence: str
    settings: tuple[str, ...]
    is_compared: bool


def bare_assertion(case: Case) -> Step | None:
    """The settings that a check without a message is about."""
    frame = case.frame
    if frame is None or case.kind != "AssertionError" or not is_bare(case, frame):
        return None
    unmet = unmet_by(frame.source)
    return Step(advice(unmet, frame)) if unmet and unmet.settings else None


def is_bare(case: Case, frame: Frame) -> bool:
    """Whether an assertion has no message, or repeats its line."""
    return not case.message or case.message in frame.source


def advice(unmet: Unmet, frame: Frame) -> str:
    """Which settings to change, and the check that they don't meet."""
    file = re.split(r"[\\/]", frame.file)[-1]
    names = " or ".join(f"`{name}`" for name in unmet.settings)
    other = ", or what it is compared with" if unmet.is_compared else ""
    return f"Change {names}{other}: in line {frame.line} of {file}, {unmet.sentence}."


def unmet_by(source: str) -> Unmet | None:
    """What a line that asserts something shows if it fails; None for another or a cut line."""
    try:
        (statement,) = ast.parse(source.strip()).body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(statement, ast.Assert) or isinstance(statement.test, ast.Constant):
        return None
    test = statement.test
    settings = tuple(dict.fromkeys(_settings(test)))
    return Unmet(_sentence(test), settings, isinstance(test, ast.Compare))


def _sentence(test: ast.expr) -> str:
    """What is the case if an expression isn't true."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return f"{_code(inner)} is true, or isn't empty"
        case ast.Compare(ops=[ast.Eq()], left=ast.BinOp(op=ast.Mod(), left=one, right=by)):
            return f"{_code(one)} isn't a multiple of {_code(by)}"
        case ast.Compare(ops=[one], comparators=[right]):
            return f"{_code(test.left)} {COMPARISONS[type(one)]} {_code(right)}"
        case ast.Call(func=ast.Name(id="isinstance"), args=[value, kind]):
            return f"{_code(value)} isn't of type {_code(kind)}; it may be None"
        case ast.Name() | ast.Attribute():
            return f"{_code(test)} is false, empty or None"
        case _:
            return f"{_code(test)} isn't true"


def _settings(test: ast.expr) -> Iterator[str]:
    """The names that an expression reads from an object of settings."""
    called = {id(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)}
    for node in ast.walk(test):
        if not isinstance(node, ast.Attribute) or id(node) in called:
            continue
        holder = node.value
        name = getattr(holder, "attr", "") or getattr(holder, "id", "")
        if HOLDERS.fullmatch(name) and not HOLDERS.fullmatch(node.attr):
            yield from () if node.attr in OF_MODEL else (node.attr,)


def _code(part: ast.expr) -> str:
    return f"`{ast.unparse(part)}`"
