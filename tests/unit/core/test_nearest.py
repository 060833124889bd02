"""Suggestions for an unknown word."""

from __future__ import annotations

from safe_launch.core.nearest import meant, near
from support.tables import table

PRESETS = ("ddp", "fsdp2", "zero1", "zero2", "zero2-offload", "zero3", "zero3-offload")


@table(
    ("word", "hint"),
    [
        ("zero3-ofload", "did you mean `zero3-offload`? Near it are `zero2-offload`, `zero3`"),
        ("FSDP", "did you mean `fsdp2`? Near it are `ddp`, `zero2-offload`"),
        ("offload", "did you mean `zero2-offload`? Near it are `zero3-offload`, `fsdp2`"),
        ("qqq", "the nearest are `ddp`, `fsdp2`, `zero1`"),
    ],
)
def test_the_three_nearest(word: str, hint: str) -> None:
    """Case is ignored; a part of a word matches; at most three are suggested."""
    assert near(word, PRESETS) == hint


def test_only_what_was_meant() -> None:
    """A bad guess is worse than none."""
    assert meant("zero4", PRESETS) == "did you mean `zero1`?"
    assert meant("fsdp1-offload", PRESETS) == ""
    assert near("x", ()) == ""
