"""Gradients that reach an optimizer, compared with those that backward added on each rank."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from safe_launch.checks.finding import Finding
from safe_launch.checks.gradients import judged
from safe_launch.checks.seen_gradients import (
    ELEMENTS,
    PARTS,
    WINDOWS,
    Passed,
    Row,
    Seen,
    Way,
    decoded,
    encoded,
)
from support.tables import table

RANKS, FP32, BF16 = 3, 2.0**-24, 2.0**-8
NAN = (math.nan,) * ELEMENTS
Reached = Callable[[int, Sequence[Row], Sequence[Sequence[Row]]], Row]
"""The optimizer's gradient from a rank, its additions, and those of all ranks."""


def mean(rows: Sequence[Row]) -> Row:
    """The mean of several vectors."""
    return [sum(each) / len(rows) for each in zip(*rows, strict=True)]


def total(*rows: Row) -> Row:
    """The sum of several vectors."""
    return [sum(each) for each in zip(*rows, strict=True)]


def seen(
    reached: Reached, parts: int, *, way: Way = Way.DDP, roundoff: float = FP32, idle: int = -1
) -> dict[int, str]:
    """The ranks' messages."""
    drawn = random.Random(1)
    windows: list[list[list[Passed]]] = []  # by step, parameter and rank
    for _ in range(WINDOWS):
        windows.append([])
        for _ in range(2):
            added = [
                [[drawn.gauss(0, rank != idle) for _ in range(ELEMENTS)] for _ in range(parts)]
                for rank in range(RANKS)
            ]
            each = [Passed(tuple(own), reached(rank, own, added)) for rank, own in enumerate(added)]
            windows[-1].append(each)
    return {
        rank: encoded(
            Seen(way, roundoff, tuple(tuple(each[rank] for each in window) for window in windows))
        )
        for rank in range(RANKS)
    }


def right(_rank: int, _own: Sequence[Row], every: Sequence[Sequence[Row]]) -> Row:
    """The clipped mean of all."""
    return [value * 0.01 for value in total(*(mean(each) for each in zip(*every, strict=True)))]


def own(_rank: int, own: Sequence[Row], _every: Sequence[Sequence[Row]]) -> Row:
    """The rank's gradient, scaled by its clipping."""
    return [value * 3 for value in total(*own)]


def last_own(_rank: int, own: Sequence[Row], every: Sequence[Sequence[Row]]) -> Row:
    """The rank's gradient of the last addition."""
    means = [mean(each) for each in zip(*every, strict=True)]
    return total(*means[:-1], own[-1])


def second_lost(rank: int, _own: Sequence[Row], every: Sequence[Sequence[Row]]) -> Row:
    """The mean without the second addition; one rank holds the elements."""
    means = [mean(each) for each in zip(*every, strict=True)]
    return total(means[0], *means[2:]) if rank == 1 else NAN


def edited(rank: int, own: Sequence[Row], every: Sequence[Sequence[Row]]) -> Row:
    """The mean with the script's noise."""
    noise = random.Random(rank)
    return [value + noise.gauss(0, 0.2) for value in right(rank, own, every)]


def found(values: dict[int, str]) -> Finding | None:
    """The finding on two parameters."""
    return judged(("a", "b"), values)


@table(
    ("reached", "parts", "way", "says"),
    [
        (right, 1, Way.DDP, ""),
        (right, PARTS, Way.DEEPSPEED, ""),
        (own, 1, Way.DDP, "aren't averaged"),
        (own, 3, Way.SCRIPT, "aren't averaged"),
        (last_own, 2, Way.DDP, "in 1 of 2 passes"),
        (second_lost, 3, Way.DEEPSPEED, "of 3 additions"),
        (second_lost, 3, Way.FSDP, "number 2 never reached"),
        (second_lost, 3, Way.DDP, ""),  # the script may have cleared it
        (edited, 1, Way.DDP, ""),
        (edited, 3, Way.DEEPSPEED, ""),
    ],
)
def test_what_became_of_additions(reached: Reached, parts: int, way: Way, says: str) -> None:
    """Only explained differences are findings; a script's loop may be intended."""
    finding = found(seen(reached, parts, way=way))
    assert (finding is not None) == bool(says)
    if finding is not None:
        assert says in finding.sentence
        assert finding.certain == (way is not Way.SCRIPT)
        assert finding.parameter == "a"


def test_the_ranks_that_have_it() -> None:
    """All ranks with unreduced gradients are named, or the rank that lost an addition."""
    finding = found(seen(own, 1))
    assert finding is not None
    assert finding.ranks == (0, 1, 2)
    finding = found(seen(second_lost, 3, way=Way.DEEPSPEED))
    assert finding is not None
    assert finding.ranks == (1,)


def test_a_rank_that_contributes_nothing() -> None:
    """The rank is named as possibly intended; all ranks together are no finding."""
    finding = found(seen(right, 1, idle=1))
    assert finding is not None
    assert (finding.ranks, finding.certain) == ((1,), False)
    nothing = {rank: seen(right, 1, idle=rank)[rank] for rank in range(RANKS)}
    assert found(nothing) is None


def test_rounding() -> None:
    """bfloat16 roundoff is tolerated; an unreduced gradient is still found."""

    def rounded(rank: int, own: Sequence[Row], every: Sequence[Sequence[Row]]) -> Row:
        noise = random.Random(rank)
        return [value * (1 + noise.uniform(-BF16, BF16)) for value in right(rank, own, every)]

    assert found(seen(rounded, 3, roundoff=BF16)) is None
    assert found(seen(own, 1, roundoff=BF16)) is not None
    assert found(seen(own, 1, roundoff=2.0**-3)) is None


def test_what_a_stranger_sends() -> None:
    """Only number rows that fit the parameters and steps count."""
    values = seen(own, 1)
    assert decoded(values[0], 2) is not None
    word = values[0].split()[2]
    for other in ("", "ddp", "ddp x", "who -24", f"ddp -24 {word}", "ddp -24 0: 0: 0: 0:"):
        assert decoded(other, 2) is None
    for strange in ("17:AAAA", "1:AAA", "-1:AAAA", "x:AAAA", f"{ELEMENTS}:AAAAAA=="):
        assert decoded(f"ddp -24 {strange} {strange} {strange} {strange}", 2) is None
    assert found({**values, 1: "ddp"}) is None
    infinite = Passed(((math.inf,) * ELEMENTS,), (math.inf,) * ELEMENTS)
    strange = encoded(Seen(Way.DDP, FP32, ((infinite, infinite),) * WINDOWS))
    assert found({**values, 1: strange}) is None
    assert found({**values, 1: values[1].replace("ddp", "fsdp2")}) is None
    assert judged(("a",), {0: "ddp -24", 1: "ddp -24"}) is None


def test_gradients_that_are_never_cleared() -> None:
    """A step reuses the previous gradients, unless they are cleared after all."""
    drawn = random.Random(1)
    for is_kept in (True, False):
        used: Row = [drawn.gauss(0, 1) for _ in range(ELEMENTS)]
        windows: list[list[Passed]] = []  # by step and rank
        for _ in range(WINDOWS):
            added = [[drawn.gauss(0, 1) for _ in range(ELEMENTS)] for _ in range(RANKS)]
            left, used = used, total(used, mean(added)) if is_kept else mean(added)
            windows.append([Passed((left, own), used) for own in added])
        values = {
            rank: encoded(Seen(Way.DDP, FP32, tuple((window[rank],) for window in windows)))
            for rank in range(RANKS)
        }
        found = judged(("a",), values)
        assert (found is not None and "never cleared" in found.sentence) == is_kept
