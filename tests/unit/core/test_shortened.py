"""Shortening long quotations."""

from __future__ import annotations

import pytest
from safe_launch.core.shortened import shortened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ten letter", "ten letter"),
        ("seed 42 of", "seed 42 of"),
        ("seed 42 in run_20261126", "seed 42 in…"),
        ("seed 42 is no seed", "seed 42 is…"),
        ("/data/run_20261126140359", "/data/run_…"),
        ("a /data/run_20261126140359", "a /data/ru…"),
    ],
)
def test_it_ends_after_a_word_and_says_that_more_follows(text: str, expected: str) -> None:
    """A word is cut only if it fills half of the width."""
    assert shortened(text, 10) == expected
