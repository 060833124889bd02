"""How samples are drawn and decided by, on plain values: faults are found, right ones aren't."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from safe_launch.checks import sampling
from support.tables import table

ALL = [0] * 20 + [1] * 20 + [2] * 20


@table(
    ("labels", "is_so"),
    [
        (ALL, True),
        ([2] * 16 + [0] * 16, True),
        ([0] * 30 + [1], False),  # a rare class that comes last
        ([0] * 20 + [1, 1] + [0] * 20, False),
        ([0, 1, 2] * 20, False),
        ([0] * 60, False),
        (list(range(60)), False),  # numbers of samples
        ([], False),
    ],
)
def test_labels_that_come_class_by_class(labels: Sequence[float], *, is_so: bool) -> None:
    """Only several classes, each of which comes once, and not for one sample alone."""
    assert sampling.is_grouped(labels) == is_so


def test_training_without_shuffling() -> None:
    """With batches of one class it depends on the data set's labels."""
    batches = [ALL[place : place + 8] for place in range(0, 56, 8)]
    found = sampling.unshuffled(batches, are_all_grouped=False)
    assert found is not None
    assert "the first 7 steps have 3 classes, a batch at most 2" in found.line
    one = sampling.unshuffled([[3.0] * 8] * 3, are_all_grouped=True)
    assert one is not None
    assert "the first 3 steps have 1 class, a batch one" in one.line
    assert sampling.unshuffled([[3.0] * 8] * 3, are_all_grouped=False) is None
    assert sampling.unshuffled([[0.0, 1.0] * 4] * 3, are_all_grouped=True) is None


@pytest.mark.parametrize(("weights", "is_found"), [(4, True), (96, False), (200, False)])
def test_weights_of_classes(weights: int, *, is_found: bool) -> None:
    """Fewer than samples."""
    assert (sampling.weighted_by_class(weights, 96, certain=True) is not None) == is_found


@table(
    ("trained", "evaluated", "common"),
    [
        (range(64), range(48, 80), 16),
        (range(64), range(64, 96), 0),
        (range(64), range(8), 0),  # the training's accuracy
        (range(64), range(64), 0),
        (range(8), range(64), 0),  # all samples
    ],
)
def test_samples_in_both(trained: range, evaluated: range, common: int) -> None:
    """If each has others as well."""
    assert sampling.overlap_of(trained, evaluated) == common
