"""Pretrained weights that don't reach a model, or don't stay in it, on plain values."""

from __future__ import annotations

from safe_launch.checks import loaded as judged
from support.tables import table

BODY = {f"layers.{place}.weight": (8, 8) for place in range(4)}
OTHERS = {name.replace("layers", "blocks"): shape for name, shape in BODY.items()}
VALUES = [((place * 37) % 101) / 50 - 1 for place in range(32)]
ANEW = [((place * 53 + 7) % 97) / 48 - 1 for place in range(32)]


@table(
    ("missing", "unexpected", "elements", "is_told"),
    [
        (BODY, OTHERS, 300, True),
        (BODY, OTHERS, 600, False),  # less than half
        (BODY, {}, 300, False),  # a new part
        ({"head.weight": (2, 8)}, {"fc.weight": (5, 8)}, 17, False),
        ({"head.weight": (2, 8)}, {"fc.weight": (2, 8)}, 17, False),  # one alone
    ],
)
def test_names_that_do_not_match(
    missing: dict[str, tuple[int, ...]],
    unexpected: dict[str, tuple[int, ...]],
    elements: int,
    is_told: bool,
) -> None:
    """Most of a model is missing, and has twins of other names."""
    assert (judged.renamed(missing, unexpected, elements) is not None) == is_told
    assert judged.renamed(missing, unexpected, elements, is_all=True) is None


@table(
    ("now", "is_told"),
    [
        (ANEW, True),
        ([0.0] * 32, True),
        (VALUES, False),
        ([0.4 * value + 0.1 * other for value, other in zip(VALUES, ANEW, strict=True)], False),
        ([round(value, 2) for value in VALUES], False),
    ],
)
def test_weights_drawn_after_a_load(now: list[float], is_told: bool) -> None:
    """Values that have nothing of the loaded ones; not with noise, nor rounded."""
    found = judged.overwritten({"a": VALUES, "b": VALUES}, {"a": now, "b": now})
    assert (found is not None) == is_told


def test_a_part_drawn_anew() -> None:
    """A new head, or tensors that were replaced."""
    loaded = dict.fromkeys("abc", VALUES)
    assert judged.overwritten(loaded, {**loaded, "a": ANEW}) is None
    assert judged.overwritten(loaded, {}) is None


def test_a_load_that_a_step_takes_back() -> None:
    """Weights return to those before the load, not only a part of them."""
    before, loaded = {"a": [0.0, 1.0], "b": [2.0, 3.0]}, {"a": [5.0, 6.0], "b": [7.0, 8.0]}
    found = judged.taken_back(before, loaded, {"a": [0.1, 1.1], "b": [2.1, 3.1]})
    assert found is not None
    assert "a and 1 more are as before the load" in found.sentence
    assert judged.taken_back(before, loaded, {"a": [5.1, 6.1], "b": [7.1, 8.1]}) is None
    assert judged.taken_back(before, loaded, {"a": [0.1, 1.1], "b": [7.1, 8.1]}) is None
    assert judged.taken_back(loaded, loaded, loaded) is None
    assert judged.taken_back({}, loaded, loaded) is None
