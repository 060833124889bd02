"""What a script's source does to its parsed arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ...core.certainty import Origin
from .expressions import Evaluator
from .given import Given
from .known_values import NotKnown


def assigned(evaluator: Evaluator, given: Mapping[str, Given]) -> tuple[dict[str, Given], set[str]]:
    """What the script does to its parsed arguments, and which it changes in ways not known.

    Args:
        evaluator: of the script's files.
        given: what is given to the script: what its source contradicts isn't known.
    """
    values: dict[str, Given] = {}
    unknown: set[str] = set()
    for site in evaluator.sites:
        for name, node in _attributes(site.node, evaluator):
            try:
                if not evaluator.is_reached(site):
                    continue
                if node is None:
                    raise NotKnown
                value = evaluator.value(node, site)
            except NotKnown:
                unknown.add(name)
                continue
            if name not in evaluator.arguments or evaluator.arguments[name] != value:
                if name in given or (name in values and values[name].value != value):
                    unknown.add(name)
                values[name] = Given(value, Origin.SCRIPT, f"{site.file.place(site.node)}: {name}")
    return values, unknown


def _attributes(node: ast.AST, evaluator: Evaluator) -> Iterator[tuple[str, ast.expr | None]]:
    """The arguments that a statement sets, and to what."""
    targets: list[ast.expr] = []
    value: ast.expr | None = None
    match node:
        case ast.Assign():
            targets, value = node.targets, node.value
        case ast.AugAssign():
            targets = [node.target]
    for target in targets:
        if isinstance(target, ast.Attribute) and evaluator.is_arguments(target.value):
            yield target.attr, value
