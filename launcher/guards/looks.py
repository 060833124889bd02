"""Runs checks before or after framework calls, without changing anything."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import wrapt

from ..checks.finding import Finding
from ..evidence.observations import observations
from .checks.reporting import report_here


@dataclass(frozen=True, slots=True)
class Call:
    """A framework call to check.

    Attributes:
        arguments: the arguments passed, by name, without `self`.
        owner: the object whose method is called.
        steps: optimizer steps done by this process.
    """

    arguments: Mapping[str, Any]
    owner: Any
    steps: int = 0


Look = Callable[[Call], Iterator[str | Finding]]


@dataclass(frozen=True, slots=True)
class Watched:
    """A call to check, and the check.

    Attributes:
        look: yields the findings.
        is_after: whether to check after the call returned.
        first: number of calls to check per object; 0 for all.
    """

    look: Look
    is_after: bool = False
    first: int = 0


Looks = Mapping[str, Mapping[str, Sequence[Watched]]]
"""The calls to check, by module and path in it."""


def install(looks: Looks, module: ModuleType) -> None:
    """Wraps the module's checked calls."""
    for path, several in looks[module.__name__].items():
        for watched in several:
            wrapper = partial(_looked_at, watched, weakref.WeakKeyDictionary())
            wrapt.wrap_function_wrapper(module, path, wrapper)


def _looked_at(
    watched: Watched,
    seen: weakref.WeakKeyDictionary[Any, int],
    wrapped: Any,
    instance: Any,
    args: Any,
    kwargs: Any,
) -> Any:
    if watched.first and seen.get(instance, 0) >= watched.first:
        return wrapped(*args, **kwargs)

    def look() -> None:
        # Invalid arguments fail in the call itself.
        with suppress(Exception), observations.going_on():
            if watched.first:
                seen[instance] = seen.get(instance, 0) + 1
            arguments = inspect.signature(wrapped).bind_partial(*args, **kwargs).arguments
            named = {**arguments, **arguments.get("kwargs", {})}
            for sentence in watched.look(Call(named, instance, observations.steps_of_all() or 0)):
                if isinstance(sentence, Finding):
                    report_here(sentence)
                else:
                    observations.remark(sentence)

    if not watched.is_after:
        look()
    result = wrapped(*args, **kwargs)
    if watched.is_after:
        look()
    return result
