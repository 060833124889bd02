"""What losses are given, how means weigh tokens, and where dropout acts: judged by plain values."""

from __future__ import annotations

from typing import Any

from safe_launch.checks import divided, given
from safe_launch.checks.divided import Masked, Mean
from safe_launch.checks.given import Given
from support.tables import table

LOGARITHMS = Given(most=-0.1, least=-9.0, lowest=-20.0, highest=-8.0, mass=1.001, rest=0.999)
SHARES = Given(most=0.9, least=0.0, lowest=1.0, highest=1.0, mass=5.0, rest=4.0)
RAW = Given(most=4.0, least=-3.0, lowest=-2.0, highest=3.0, mass=60.0, rest=2.0)
OVER = Given(most=-0.1, least=-9.0, lowest=-20.0, highest=-8.0, mass=2.8, rest=0.3)


@table(
    ("function", "call", "is_row", "said", "is_certain"),
    [
        ("kl_div", LOGARITHMS, False, "", False),
        ("kl_div", SHARES, False, "has probabilities,", True),
        ("kl_div", RAW, False, "values up to 4", False),
        ("kl_div", OVER, False, "", False),  # logarithms over another dimension
        ("nll_loss", LOGARITHMS, True, "", False),
        ("nll_loss", SHARES, True, "has probabilities,", False),
        ("nll_loss", RAW, True, "values up to 4", False),
        ("nll_loss", OVER, True, "add up to 2.8 for one label", False),
        ("ctc_loss", RAW, False, "values up to 4", False),
        ("ctc_loss", LOGARITHMS, False, "", False),
    ],
)
def test_inputs_that_are_no_logarithms(
    function: str, call: Given, is_row: bool, said: str, is_certain: bool
) -> None:
    """Three calls have to agree; rows are only judged if each is one label's."""
    found = given.no_logarithms(function, [call] * 3, is_normalizing=is_row)
    assert (found is not None) == bool(said)
    if found is not None:
        assert said in found.sentence
        assert found.certain == is_certain
    assert given.no_logarithms(function, [call] * 2, is_normalizing=is_row) is None
    mixed = [LOGARITHMS, call, call]
    assert given.no_logarithms(function, mixed, is_normalizing=is_row) is None


@table(
    ("target", "under", "is_logarithm", "said"),
    [
        (0.9, 0.0, False, ""),
        (-0.1, -8.0, True, ""),
        (0.9, 0.0, True, "log_target=True"),
        (-0.1, -8.0, False, "less than 0"),
        (3.0, 0.0, False, "greater than 1"),
        (1.02, 0.0, False, ""),  # rounded
    ],
)
def test_targets_of_a_divergence(
    target: float, under: float, is_logarithm: bool, said: str
) -> None:
    """They are probabilities, or logarithms if so asked."""
    calls = [Given(target=target, under=under)] * 3
    found = given.no_probabilities(calls, is_logarithm=is_logarithm)
    assert (found is not None) == bool(said)
    if found is not None:
        assert said in found.sentence


@table(
    ("targets", "is_told"),
    [
        ((1.0, 0.0), False),
        ((1.2, 0.0), False),  # smoothed for a GAN
        ((255.0, 0.0), True),
        ((1.0, -1.0), True),
        ((2.0, 0.0), True),
    ],
)
def test_targets_of_a_binary_loss(targets: tuple[float, float], is_told: bool) -> None:
    """They may be soft, but not far from 0..1."""
    calls = [Given(target=targets[0], under=targets[1])] * 3
    assert (given.outside("binary_cross_entropy", calls) is not None) == is_told
    assert given.outside("binary_cross_entropy", calls[:2]) is None


def test_means_over_classes() -> None:
    """Only over many, and of logarithms."""
    assert given.divided_by_classes(32_000, [LOGARITHMS] * 3) is not None
    assert given.divided_by_classes(10, [LOGARITHMS] * 3) is None
    assert given.divided_by_classes(32_000, [OVER] * 3) is None


def passes(*counts: float, tokens: float = 40, weight: float = 0.5) -> list[Mean]:
    """The micro batches of a step."""
    return [Mean(count, tokens, weight) for count in counts]


@table(
    ("steps", "is_told"),
    [
        ([passes(10, 30)] * 3, True),
        ([passes(10, 30), passes(10, 30), passes(10, 15)], False),
        ([passes(10, 30)] * 2, False),
        ([passes(10)] * 3, False),  # no accumulation
        ([passes(40, 40)] * 3, False),
        ([[Mean(10, 10, 0.5), Mean(30, 30, 0.5)]] * 3, False),  # nothing is ignored
        ([[Mean(10, 40, 0.25), Mean(30, 40, 0.75)]] * 3, False),  # weighed by what it counts
        ([passes(0, 30)] * 3, False),
    ],
)
def test_weights_of_micro_batches(steps: list[list[Mean]], is_told: bool) -> None:
    """A token of one counts more than twice as much as another's, in each step."""
    assert (divided.unlike_weights(steps) is not None) == is_told


def masked(elements: float, count: float, by: float, labelled: float | None = None) -> Masked:
    """Losses whose sum is divided by a number."""
    return Masked(elements, count, elements if labelled is None else labelled, 1 / by, 1 / by)


@table(
    ("batches", "is_told"),
    [
        ([masked(40, 30, 40), masked(44, 20, 44), masked(36, 30, 36)], True),
        ([masked(40, 30, 30), masked(44, 20, 20), masked(36, 30, 30)], False),
        ([masked(40, 30, 99), masked(44, 20, 99), masked(36, 30, 99)], False),  # a constant
        ([masked(40, 30, 40), masked(40, 20, 40), masked(40, 25, 40)], False),  # or this one
        ([masked(40, n, 40, labelled=n) for n in (30, 20, 25)], True),  # ignored labels
        ([masked(40, 30, 40), masked(44, 44, 44), masked(36, 30, 36)], False),
        ([masked(40, 30, 40), masked(44, 33, 44)], False),
        ([Masked(40, 30, 40, 0.1, 0.05)] * 3, False),  # weighed
    ],
)
def test_means_of_masked_losses(batches: list[Masked], is_told: bool) -> None:
    """The sum is divided by all tokens although some are left out."""
    assert (divided.divided_by_all(batches) is not None) == is_told


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
    found = given.alike(zeros, is_cut=is_cut)
    assert (found is not None) == bool(words)
    assert found is None or words in found.sentence


@table(
    ("prompts", "size", "are_mixed"),
    [
        ("aabb", 2, False),
        ("abab", 2, True),
        ("aa", 4, False),  # a group of two ranks
        ("ab", 4, True),
        ("aab", 2, False),
        ("a", 4, False),
        ("ab", 1, False),
    ],
)
def test_groups(prompts: str, size: int, are_mixed: bool) -> None:
    """A rank's part of a group has one prompt."""
    assert given.are_mixed(prompts, size) is are_mixed


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
    found = given.sampled_otherwise(options)
    assert (found is not None) == bool(words)
    assert found is None or words in found.sentence
