"""Tests of a table: one item has many rows, and its message names every row that fails.

A row that takes an item of its own costs more to collect and to report than most rows take. What
is for one row is written as if there were only one: it gets its own folder, its own patches and
nothing that another has printed.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

Check = Callable[..., None]
LONGEST = 160
"""Characters of a row that has no other name."""


def read_yaml(path: Path) -> Any:
    """The rows of a file, read ten times as fast where YAML's loader in C is there."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(path.read_text(encoding="utf-8"), loader)


def table(
    names: str | tuple[str, ...],
    rows: Iterable[Any],
    *,
    name: Callable[[Any], str] = lambda row: repr(row)[:LONGEST],
    parts: int = 1,
) -> Callable[[Check], Check]:
    """A decorator for a test of all rows, in the place of `pytest.mark.parametrize`.

    Args:
        names: the test's arguments that a row has.
        rows: the values of each row; of a single argument the value itself.
        name: what a row is called where it fails.
        parts: the items that the rows are dealt to, where one would take long.
    """
    every = list(rows)

    def of_all(check: Check) -> Check:
        of_row = (names,) if isinstance(names, str) else names

        @functools.wraps(check)
        def test(*, part: int = 0, **given: Any) -> None:
            __tracebackhide__ = True
            failed: dict[str, BaseException] = {}
            for number, row in enumerate(every[part::parts]):
                values = dict(zip(of_row, (row,) if isinstance(names, str) else row, strict=True))
                error = _problem(check, values, given, number)
                if error is not None:
                    failed[f"{number * parts + part}: {name(row)}"] = error
            if failed:
                told = "\n".join(f"row {row}\n    {_told(error)}" for row, error in failed.items())
                problem = f"{len(failed)} of {len(every[part::parts])} rows:\n{told}"
                raise AssertionError(problem) from next(iter(failed.values()))

        own = inspect.signature(check)
        others = [one for key, one in own.parameters.items() if key not in of_row]
        if parts > 1:
            others.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY))
        test.__signature__ = own.replace(parameters=others)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("part", range(parts))(test) if parts > 1 else test

    return of_all


def _problem(
    check: Check, row: Mapping[str, Any], given: Mapping[str, Any], number: int
) -> BaseException | None:
    """What a row fails with. A test that takes too long ends with all of its rows."""
    with ExitStack() as after:
        own = dict(given)
        if "tmp_path" in own:
            own["tmp_path"] /= str(number)
            own["tmp_path"].mkdir()
        if "monkeypatch" in own:
            own["monkeypatch"] = after.enter_context(pytest.MonkeyPatch.context())
        if "capsys" in own:
            own["capsys"].readouterr()
        try:
            check(**row, **own)
        except (Exception, pytest.fail.Exception) as error:
            if "pytest-timeout" in str(error):
                raise
            return error
    return None


def _told(error: BaseException) -> str:
    """An error with the line of the test, below its row."""
    line = traceback.extract_tb(error.__traceback__)[:2][-1].lineno
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"line {line}: {kind}{error}".replace("\n", "\n    ")
