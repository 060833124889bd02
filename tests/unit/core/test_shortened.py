"""Shortening long quotations."""

from __future__ import annotations

import pytest
from safe_launch.core.shortened import shortened, with_short_paths


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in '/data/a.bin', line 3", "in '/data/a.bin', line 3"),
        (
            f"open '/a/{'deep/' * 12}weights.bin'",
            "open '/a/deep/deep/deep/deep/deep/deep/…/weights.bin'",
        ),
        (
            f"C:\\w\\{'d/' * 30}{'ab' * 30}.lock: no",
            "C:\\w\\d/d/d/d/…/abababababababab…bababababab.lock: no",
        ),
        (f"https://hub/{'x/' * 30}y.json", f"https://hub/{'x/' * 16}…/y.json"),
    ],
)
def test_a_long_path_keeps_its_name(text: str, expected: str) -> None:
    """The first folders and the file's name remain."""
    assert with_short_paths(text) == expected
