"""What a transformers model's first passes are given."""

from __future__ import annotations

from safe_launch.checks import passed
from support.tables import table


@table(
    ("shown", "words"),
    [
        ([[True, False, False, False], *[[False] * 4] * 2], ["the classifier reads padding"]),
        ([[False, True, False, False]] * 2 + [[False] * 4], ["texts end in several pad"]),
        ([[False, True, False, False]] + [[False] * 4] * 2, []),
        ([[False, False, True, True]] * 3, ["texts begin with several pad", "shifted positions"]),
        ([[True] * 4] * 2, []),
    ],
)
def test_padding(shown: list[list[bool]], words: list[str]) -> None:
    """The classifier's is certain in one batch; others must be in two."""
    found = [each.sentence for each in passed.judged(shown) if each]
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))


@table(
    ("coefficient", "routers", "is_found"),
    [(0.02, 2, True), (0.0, 2, False), (0.02, 0, False)],  # frozen under an adapter
)
def test_experts(coefficient: float, routers: int, is_found: bool) -> None:
    """Their routers are trained, and the balancing loss is off."""
    assert (passed.unbalanced(coefficient, routers) is not None) == is_found


@table(
    ("labels", "is_found"),
    [
        ((80, 30, 0), True),
        ((80, 30, 2), False),
        ((80, 0, 0), False),
        ((80, 80, 0), False),
        ((8, 3, 0), False),
    ],
)
def test_numbers(labels: tuple[int, int, int], is_found: bool) -> None:
    """Both classes must be among the labels, and nothing else."""
    assert (passed.regression(*labels) is not None) == is_found
