"""Which ranks are stragglers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safe_launch.progress.board import WINDOW, Phase, RankProgress
from safe_launch.progress.stragglers import stragglers

WHOLE = 0.2


def row(rank: int, own: Sequence[float], whole: float = WHOLE) -> RankProgress:
    """A training rank with these own times."""
    return RankProgress(
        rank, 1, 1, Phase.TRAINING, 40, 0.0, 9.0, 0.1, tuple(own), (whole,) * len(own)
    )


def noisy(rank: int, seconds: float, seed: int = 0) -> RankProgress:
    """A rank whose own time varies by a quarter."""
    chance = random.Random(100 * seed + rank)
    return row(rank, [seconds * chance.uniform(0.75, 1.25) for _ in range(WINDOW)])


@given(st.integers(0, 1000), st.integers(2, 32))
def test_noise_makes_no_straggler(seed: int, ranks: int) -> None:
    """Times vary alike on all ranks."""
    assert stragglers([noisy(rank, 0.05, seed) for rank in range(ranks)]) == ()


@given(st.integers(0, 1000), st.integers(2, 32), st.data())
def test_a_rank_that_is_slower_in_every_step(seed: int, ranks: int, data: st.DataObject) -> None:
    """The slowdown and its cost are reported; two ranks are enough."""
    slow = data.draw(st.integers(0, ranks - 1))
    times = dict.fromkeys(range(ranks), 0.05) | {slow: 0.15}
    (found,) = stragglers([noisy(rank, times[rank], seed) for rank in times])
    assert found.rank == slow
    assert found.factor == pytest.approx(3, rel=0.25)
    assert found.seconds == pytest.approx(0.1, rel=0.25)


def test_two_of_eight_are_told_the_slowest_first() -> None:
    """Half of all ranks is no straggler: the halves do different work."""
    times = [0.05, 0.15, 0.05, 0.05, 0.3, 0.05, 0.05, 0.05]
    rows = [noisy(rank, seconds) for rank, seconds in enumerate(times)]
    assert [found.rank for found in stragglers(rows)] == [4, 1]
    halves = [noisy(rank, 0.05 if rank % 2 else 0.15) for rank in range(8)]
    assert stragglers(halves) == ()


@pytest.mark.parametrize("spikes", [1, 2, 3])
def test_pauses_of_a_few_steps_are_no_straggler(spikes: int) -> None:
    """Garbage collection, logging or a checkpoint pause a rank."""
    paused = row(1, [0.05] * (WINDOW - spikes) + [5.0] * spikes)
    assert stragglers([noisy(0, 0.05), paused, noisy(2, 0.05)]) == ()


def test_a_loader_that_delivers_in_bursts() -> None:
    """With four batches at a time from a slow disk, three of four steps don't wait."""
    burst = row(1, [0.4, 0.0, 0.0, 0.0] * (WINDOW // 4))
    (found,) = stragglers([noisy(0, 0.01), burst])
    assert found.rank == 1
    assert stragglers([row(rank, [0.4, 0.0, 0.0, 0.0] * (WINDOW // 4)) for rank in range(4)]) == ()


@pytest.mark.parametrize(
    ("slow", "usual", "whole"),
    [(0.06, 0.05, 0.2), (0.15, 0.05, 2.0), (0.003, 0.001, 0.004)],
    ids=["hardly slower", "a small part of the step", "too short to tell"],
)
def test_what_doesnt_matter_isnt_told(slow: float, usual: float, whole: float) -> None:
    """The factor, the share of the step, and scheduler noise have thresholds."""
    rows = [row(rank, [slow if rank == 2 else usual] * WINDOW, whole) for rank in range(4)]
    assert stragglers(rows) == ()


def test_a_full_window_of_several_ranks_is_needed() -> None:
    """A single rank or too few steps give no report."""
    assert stragglers([]) == ()
    assert stragglers([row(0, [0.5] * WINDOW)]) == ()
    assert stragglers([row(0, [0.05] * (WINDOW - 1)), row(1, [0.5] * WINDOW)]) == ()
