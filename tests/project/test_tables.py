"""Tables of rows: every row is tried, and every failing row is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import table


@table(("divisor", "expected"), [(1, 1), (0, 1), (2, 3), (4, 0.25)])
def quotients(divisor: int, expected: float, tmp_path: Path) -> None:
    """A row that raises, a wrong one, and two correct ones, each in its own folder."""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "used").touch()
    assert 1 / divisor == expected


def test_every_row_that_fails_is_named(tmp_path: Path) -> None:
    """The errors are shown, with the first one's traceback."""
    with pytest.raises(AssertionError) as caught:
        quotients(tmp_path=tmp_path)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    head, *told = str(caught.value).splitlines()
    assert head == "2 of 4 rows:"
    assert [line for line in told if line.startswith("row")] == ["row 1: (0, 1)", "row 2: (2, 3)"]
    assert "ZeroDivisionError: division by zero" in told[1]


@table("number", range(5), parts=2)
def small(number: int) -> None:
    """Three correct rows, shared by two items."""
    assert number < 3


def test_rows_are_dealt_out() -> None:
    """Each row goes to one item with its number in the whole table."""
    for part, told in enumerate(("1 of 3 rows:\nrow 4: 4\n", "1 of 2 rows:\nrow 3: 3\n")):
        with pytest.raises(AssertionError) as caught:
            small(part=part)
        assert str(caught.value).startswith(told)
