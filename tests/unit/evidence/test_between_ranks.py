"""What ranks have of one thing is compared once all of a node have told."""

from __future__ import annotations

from safe_launch.evidence.between_ranks import told
from safe_launch.evidence.worker_messages import Shared
from support.tables import table

TWO = (2, 3)


@table(
    ("what", "values", "is_told"),
    [
        (Shared.SEED, {2: "1", 3: "2"}, True),
        (Shared.SEED, {2: "1", 3: "1"}, False),
        (Shared.SEED, {2: "1"}, False),
        (Shared.BATCH, {2: "a", 3: "a"}, True),
        (Shared.BATCH, {2: "a", 3: "b"}, False),
        (Shared.BATCH, {2: "a"}, False),
    ],
)
def test_differing_ranks(what: Shared, values: dict[int, str], is_told: bool) -> None:
    """Seeds must be the same, batches must not."""
    sentence = told(what, "train.py:7", values, TWO)
    assert (sentence is not None) == is_told
    assert sentence is None or "train.py:7" in sentence


def test_a_rank_alone() -> None:
    """There is nothing to compare."""
    assert told(Shared.BATCH, "train.py:7", {2: "a"}, (2,)) is None
    sentence = told(Shared.SEED, "train.py:7", {2: "1", 3: "1", 4: "5"}, (2, 3, 4))
    assert sentence is not None
    assert "rank 2: 1, rank 4: 5" in sentence
