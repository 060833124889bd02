"""Rewards of groups of completions."""

from __future__ import annotations

from typing import Any

from safe_launch.checks import rewards
from support.tables import table


@table(
    ("zeros", "is_cut", "words"),
    [
        ([True] * 10, False, "all advantages of the first 10 batches are 0"),
        ([True] * 10, True, "every completion is cut"),
        ([True] * 9, True, ""),
        ([True] * 9 + [False], True, ""),
    ],
)
def test_advantages(zeros: list[bool], is_cut: bool, words: str) -> None:
    """All of ten batches must be zero."""
    found = rewards.alike(zeros, is_cut=is_cut)
    assert (found is not None) == bool(words)
    assert found is None or words in found.sentence


@table(
    ("prompts", "size", "are_mixed"),
    [
        ("aabb", 2, False),
        ("abab", 2, True),
        ("aa", 4, False),  # a group of two ranks
        ("ab", 4, True),
        ("aab", 2, None),
        ("a", 4, None),
        ("ab", 1, None),
    ],
)
def test_groups(prompts: str, size: int, are_mixed: bool | None) -> None:
    """A rank's part of a group has one prompt."""
    assert rewards.are_mixed(prompts, size) is are_mixed


@table(
    ("shown", "is_found"),
    [([True] * 3, True), ([True, True, None], False), ([True] * 2, False)],
)
def test_mixed(shown: list[bool | None], is_found: bool) -> None:
    """Three batches must show it."""
    assert (rewards.mixed(shown) is not None) == is_found


@table(
    ("options", "words"),
    [
        ({"top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}, "top_p=0.8 and top_k=20 and rep"),
        ({"top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}, ""),
        ({"top_p": 0.95, "top_k": 50, "repetition_penalty": None}, ""),
        ({}, ""),
    ],
)
def test_sampling(options: dict[str, Any], words: str) -> None:
    """Options that cut much of the distribution."""
    found = rewards.sampled_otherwise(options)
    assert (found is not None) == bool(words)
    assert found is None or words in found.sentence
