"""Evaluates templates of weights; `architectures.py` explains their language."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ...core.model import Weight, grouped
from .config_keys import ConfigSizes


def counted(parts: Iterable[tuple[str, str, ConfigSizes]]) -> tuple[Weight, ...]:
    """The weights of a model that consists of several parts.

    Args:
        parts: the prefix of its weights' names, template and sizes of each part.
    """
    counts: dict[tuple[str, tuple[int, ...]], int] = {}
    for prefix, template, sizes in parts:
        for name, shape, count in evaluate(template, sizes):
            weight = grouped([(prefix + name, shape, True)])[0]
            counts[weight.name, shape] = counts.get((weight.name, shape), 0) + count
    return tuple(Weight(name, shape, count) for (name, shape), count in counts.items())


def evaluate(template: str, sizes: ConfigSizes) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Name, shape and count of each weight in a template."""
    prefix = ""
    for line in template.splitlines():
        name, *words = line.split() or [""]
        if not name:
            continue
        if name.endswith(".*") and not words:
            prefix = f"{name}."
            continue
        if not all(_holds(word[1:], sizes) for word in words if word[0] == "?"):
            continue
        full = (prefix if line[0] == " " else "") + name.removeprefix("=")
        counts = [_number(word[1:], sizes) for word in words if word[0] == "@"]
        if not counts and line[0] == " ":
            counts = [_number("layers*experts" if full.count("*") > 1 else "layers", sizes)]
        count = counts[0] if counts else 1
        if count == 0:
            continue
        shape = tuple(_number(word, sizes) for word in words if word[0] not in "?@+")
        yield full if name[0] == "=" else f"{full}.weight", shape, count
        if any(_holds(word[1:], sizes) for word in words if word[0] == "+"):
            yield f"{full}.bias", shape[:1], count


def _holds(condition: str, sizes: ConfigSizes) -> bool:
    """Whether a condition holds; an empty condition always does."""
    if condition.startswith("!"):
        return not sizes.get(condition[1:])
    return not condition or bool(sizes.get(condition))


def _number(expression: str, sizes: ConfigSizes) -> int:
    """The value of a sum of products."""
    return sum(
        math.prod(
            int(factor) if factor.isdigit() else sizes[factor] for factor in product.split("*")
        )
        for product in expression.split("+")
    )
