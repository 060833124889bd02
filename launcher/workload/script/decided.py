"""What the calls in a script's source decide, each value with its place."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.certainty import Origin
from .adapters_made import adapter_made
from .decisive_calls import found_in_calls, is_training
from .expressions import Evaluator
from .given import Given
from .known_values import Built, Unknown
from .statements import Site
from .unguarded_calls import called


@dataclass(frozen=True, slots=True)
class Decided:
    """What the source decides.

    Attributes:
        values: by the name of the argument that stands for it in the frameworks.
        unknown: names of which only that is known: the source decides them.
        builds: classes of training arguments that the source makes by calling them.
        adapter: a member of `Adapter`, or empty for another kind; None where nothing tells.
    """

    values: Mapping[str, Given] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    builds: frozenset[str] = frozenset()
    adapter: Given | None = None


def decided(
    evaluator: Evaluator, flags: Mapping[str, Given], bases: Mapping[str, Sequence[str]]
) -> Decided:
    """What the calls in a script's source decide.

    Args:
        evaluator: of the script's files.
        flags: what is given to the script.
        bases: names of the classes that the script's own classes inherit from.
    """
    values: dict[str, Given] = {}
    unknown: set[str] = set()
    for name, value, site, node in found_in_calls(evaluator, bases):
        if isinstance(value, Unknown | Built):
            unknown.add(name)
        if value is None or name in unknown:  # None leaves it to the default
            continue
        given = _given(name, value, site, node, flags, evaluator)
        if name in values and values[name].value != given.value:
            unknown.add(name)
        values[name] = given
    builds = frozenset(
        name
        for site in evaluator.sites
        if isinstance(site.node, ast.Call) and is_training(name := called(site.node), bases)
    )
    return Decided(
        {name: given for name, given in values.items() if name not in unknown},
        frozenset(unknown),
        builds,
        adapter_made(evaluator),
    )


def _given(
    name: str,
    value: Any,
    site: Site,
    node: ast.expr,
    flags: Mapping[str, Given],
    evaluator: Evaluator,
) -> Given:
    """A value with its place: the flag's, whose value is stated only under its own name."""
    handed = None
    match node:
        case ast.Attribute(attr=argument, value=owner) if evaluator.is_arguments(owner):
            handed = flags.get(argument)
        case ast.Name(id=argument) if site.functions:
            is_fires = site.functions[-1].name in evaluator.holders
            handed = flags.get(argument) if is_fires else None
    if name in flags and _is_same(value, flags[name]):
        return Given(value, flags[name].origin, flags[name].source)
    if handed is not None:
        return Given(value, min(handed.origin, Origin.SCRIPT), handed.source)
    return Given(value, Origin.SCRIPT, f"{site.file.place(node)}: {name}")


def _is_same(value: Any, given: Given) -> bool:
    """Whether a value is what is given under its name, as other types perhaps."""
    if isinstance(value, list):
        return value in (given.value, list(given.words))
    return str(value).removeprefix("torch.").lower() == str(given.value).lower()
