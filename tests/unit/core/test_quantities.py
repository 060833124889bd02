"""Counts with their nouns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import safe_launch
from safe_launch.core.quantities import count_of, plural_of

SOURCE = Path(safe_launch.__file__).parent
OWN = SOURCE / "core" / "quantities.py"
OTHERS = {
    "{_count(model.parameters)} parameters",  # such as `8.0 B`
    "{device.memory} bytes",  # a machine's name, which isn't shown to people
    "{path} runs",  # a verb, not a plural
    "{optimizer} steps",  # verbs, too
    "{scheduler} changes",
    "{known} passes",
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((1, "run"), "1 run"),
        ((0, "run"), "0 runs"),
        ((2, "process"), "2 processes"),
        ((1, "process"), "1 process"),
        ((3, "entry"), "3 entries"),
        ((3, "day"), "3 days"),
        ((12480, "more place"), "12,480 more places"),
        ((1, "node is", "nodes are"), "1 node is"),
        ((2, "node is", "nodes are"), "2 nodes are"),
    ],
)
def test_words(words: tuple[int, str, str], expected: str) -> None:
    """The noun agrees with the number."""
    assert expected == count_of(*words)


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path != OWN:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def _plurals() -> set[str]:
    """The last words of all plurals that are counted anywhere."""
    found = set()
    for _, tree in _trees():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "count_of":
                words = [word.value for word in call.args[1:] if isinstance(word, ast.Constant)]
                found |= {plural_of(str(words[0])).split()[-1]} if len(words) == 1 else set()
    return found


def _before_plural(text: ast.JoinedStr, plurals: set[str]) -> Iterator[str]:
    """The values directly before a plural in a text, without constants."""
    for value, rest in zip(text.values, text.values[1:], strict=False):
        if not isinstance(value, ast.FormattedValue) or not isinstance(rest, ast.Constant):
            continue
        word = str(rest.value).removeprefix(" more").lstrip().partition(" ")[0]
        is_constant = ast.unparse(value.value).rpartition(".")[2].isupper()
        is_plural = word.strip(".,;:()") in plurals
        found = f"{{{ast.unparse(value.value)}}} {word}"
        if str(rest.value)[0] == " " and is_plural and not is_constant and found not in OTHERS:
            yield found


def test_one_function_counts() -> None:
    """No other function builds plurals, which would print `1 processes`."""
    plurals, found = _plurals(), []
    for path, tree in _trees():
        for text in ast.walk(tree):
            if isinstance(text, ast.JoinedStr):
                made = [ast.unparse(part) for part in text.values]
                own = [each for each in made if "{'s'" in each or "else 's'" in each]
                place = f"{path.relative_to(SOURCE)}:{text.lineno}"
                found += [f"{place}: {each}" for each in (*_before_plural(text, plurals), *own)]
    assert found == []
