"""What a value in a script's source can be beside a plain one, and the operations on values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{kind.__name__: kind for kind in (bool, float, int, list, str, tuple, len, min, max)},
    "dict": dict,
}
METHODS = {"lower", "upper", "strip", "split", "startswith", "endswith", "get", "copy"}
"""Methods of texts and dicts that change nothing."""
WORLD = ("get_world_size", "device_count")
"""Functions that tell the number of workers."""
OF_ELASTIC = ("os.environ.get('WORLD_SIZE'", "os.getenv('WORLD_SIZE'", "os.environ['WORLD_SIZE']")
"""How scripts read the number of workers that torchrun has in the environment."""


class NotKnown(Exception):  # noqa: N818 - it isn't an error: the value depends on the run
    """The value can't be known without running the script."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value inside a dict that isn't known."""


def applied(function: Callable[..., Any], *values: Any) -> Any:
    """What a function makes of values.

    Raises:
        NotKnown: one of them isn't known, or the function fails with them.
    """
    if any(isinstance(value, Unknown) for value in values):
        raise NotKnown
    try:
        result = function(*values)
    except Exception as error:
        raise NotKnown from error
    if isinstance(result, Unknown):
        raise NotKnown
    return result


@dataclass(frozen=True, slots=True)
class Built:
    """An object that the script makes by calling a class.

    Attributes:
        name: of the class.
        keywords: the arguments given by name; `Unknown` for what isn't known.
    """

    name: str
    keywords: Mapping[str, Any]
