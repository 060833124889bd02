"""Lists of processor cores, and their division among workers."""

from __future__ import annotations

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.options.core_binding import core_list, shared


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("5", (5,)),
        ("3-0", None),
        ("0,0", None),
        ("4,2", None),
        ("0-", None),
        ("-1", None),
        ("a", None),
        ("", None),
    ],
)
def test_a_list_of_cores(text: str, cores: tuple[int, ...] | None) -> None:
    """Cores are sorted and unique; anything else is rejected."""
    if cores is None:
        with pytest.raises(LaunchError, match="in ascending order"):
            core_list(text)
    else:
        assert core_list(text) == cores


def test_cores_are_shared_out() -> None:
    """Equal shares; the remainder stays unused, and too few cores give none."""
    assert shared((0, 1, 2, 4, 6), 2) == ((0, 1), (2, 4))
    assert shared((0,), 2) == ((), ())
