"""Averages, parts of checkpoints and settings that a training forgets, on plain values."""

from __future__ import annotations

from safe_launch.checks import averages, resumed
from support.tables import table


def test_statistics_of_an_average() -> None:
    """It is certain if they are a new layer's; no layer, no finding."""
    found = averages.stale_statistics(["1", "4"], is_new=True)
    assert found is not None
    assert (found.certain, "1 and 1 more has" in found.sentence) == (True, True)
    assert averages.stale_statistics([], is_new=True) is None


@table(
    ("followed", "changed", "is_told"),
    [
        (8, 800, True),
        (0, 800, False),  # a frozen reference
        (600, 800, False),
        (8, 20, False),
    ],
)
def test_averages_in_half_precision(followed: int, changed: int, is_told: bool) -> None:
    """Few of the elements that the training changes have changed."""
    assert (averages.lost_in_half("bfloat16", followed, changed) is not None) == is_told


@table(("names", "known", "is_told"), [(["a", "b"], 3, True), (["a"], 3, False), ([], 1, False)])
def test_empty_copies(names: list[str], known: int, is_told: bool) -> None:
    """Most of the parameters are empty."""
    assert (averages.empty_copy(names, known) is not None) == is_told


@table(
    ("now", "is_apart"),
    [
        ([0.1, 0.0], True),
        ([0.0, 0.0], False),  # frozen
        ([1.0, 1.0], False),  # synchronized at once
        ([0.9, 0.8], False),
    ],
)
def test_averages_that_begin_apart(now: list[float], is_apart: bool) -> None:
    """They have begun to move, and are nearer to where they began."""
    assert averages.is_begun_apart([0.0, 0.0], now, [1.0, 1.0]) == is_apart


@table(
    ("asked", "loaded", "used", "is_told"),
    [
        ({"lr": 1e-5}, {"lr": 1e-3}, {"lr": 1e-3}, True),
        ({"lr": 1e-3}, {"lr": 1e-5}, {"lr": 1e-5}, False),  # it has fallen
        ({"lr": 1e-5}, {"lr": 1e-3}, {"lr": 1e-5}, False),  # it is set again
        ({"lr": 1e-3}, {"lr": 1e-3}, {"lr": 1e-3}, False),
        ({"weight_decay": 0.1}, {"weight_decay": 0.01}, {"weight_decay": 0.01}, True),
        ({"weight_decay": 0.1}, {"weight_decay": 0.01}, {"weight_decay": 0.02}, False),
    ],
)
def test_settings_that_a_load_overrules(
    asked: dict[str, float], loaded: dict[str, float], used: dict[str, float], is_told: bool
) -> None:
    """A lower rate or another weight decay was asked for, and the loaded one is used."""
    found = resumed.overruled("Adam", [asked], [loaded], [used])
    assert (found is not None) == is_told


def test_groups_that_differ_in_number() -> None:
    """They aren't compared."""
    assert resumed.overruled("Adam", [{"lr": 1.0}], [], []) is None
