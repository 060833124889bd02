"""Reads what a class's methods use, from their code: attributes of the instance, and names."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Used:
    """What methods use, with those of the instance that they call.

    Attributes:
        attributes: of the instance, as they are read.
        names: all others, such as those of functions and of variables of the module.
    """

    attributes: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)


def used_by(kind: type, methods: Sequence[str]) -> Used:
    """What methods of a class use."""
    used = Used()
    coming = list(methods)
    while coming:
        method: Any = inspect.getattr_static(kind, coming.pop(), None)
        code = getattr(method, "__code__", None)
        if code is not None and code.co_argcount:
            new = {*_read_from(code, code.co_varnames[0])} - used.attributes
            used.attributes |= new
            coming += new
            used.names |= {*_names_in(code)}
    return used


def _names_in(code: Any) -> Iterator[str]:
    """The names in code and in the generators within it."""
    yield from (*code.co_names, *code.co_freevars)
    for part in code.co_consts:
        if hasattr(part, "co_names"):
            yield from _names_in(part)


def _read_from(code: Any, owner: str) -> Iterator[str]:
    """The attributes of a variable that code reads."""
    before = ""
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and before == owner:
            yield str(one.argval)
        is_variable = one.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))
        before = str(one.argval) if is_variable else ""
