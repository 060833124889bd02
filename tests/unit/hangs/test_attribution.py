"""Whom a stalled run waits for, in random worlds with one fault each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.evidence.failure_record import Frame
from safe_launch.hangs.attribution import attributed
from safe_launch.hangs.report import HangKind, HangReport
from safe_launch.hangs.standing import Child, Collective, Standing
from safe_launch.progress.board import Phase
from support.hang_worlds import FAULTS, SOURCE, World, world

SEEDS = range(40)
LIMIT = 60.0
CERTAIN = [name for name in FAULTS if name not in ("skips", "extra", "other shape")]
"""Faults whose culprit is certain even with two ranks."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that the worlds run, as a file."""
    path = tmp_path_factory.mktemp("worlds") / "train.py"
    path.write_text(SOURCE)
    return path


def told(standings: Sequence[Standing], quiet: float = LIMIT) -> HangReport:
    """The first report."""
    return attributed(standings, quiet, LIMIT)


def told_again(standings: Sequence[Standing], quiet: float = LIMIT) -> HangReport:
    """The second report, without any movement since the first."""
    return attributed(standings, quiet, LIMIT, told(standings, quiet))


@pytest.mark.parametrize("fault", CERTAIN)
def test_the_rank_at_fault_is_named_and_no_other(fault: str, script: Path) -> None:
    """Every world names the kind of its fault, too."""
    for seed in SEEDS:
        made = world(seed, script, fault)
        report = told(made.standings)
        assert frozenset(report.culprits) == made.fault.ranks, seed
        assert report.kind in made.fault.kinds, seed


@pytest.mark.parametrize("fault", ["skips", "extra", "other shape"])
def test_ranks_in_different_collectives(fault: str, script: Path) -> None:
    """With three or more, the odd one; with two, both unless one is proven."""
    for seed in SEEDS:
        made = world(seed, script, fault)
        report = told(made.standings)
        assert report.kind in made.fault.kinds, seed
        if len(made.standings) > 2:
            assert frozenset(report.culprits) == made.fault.ranks, seed


def test_accuracy(script: Path) -> None:
    """At least 98 % of all injections are attributed correctly, including two-rank worlds."""
    right = count = 0
    for fault in FAULTS:
        for seed in SEEDS:
            made = world(seed, script, fault)
            culprits = frozenset(told(made.standings).culprits)
            is_undecidable = len(made.standings) == 2 and len(culprits) == 2
            right += culprits == made.fault.ranks or is_undecidable
            count += 1
    assert right / count >= 0.98


def test_the_order_of_the_ranks_does_not_matter(script: Path) -> None:
    """Answers arrive in any order."""
    for seed in SEEDS:
        made = world(seed, script, FAULTS[seed % len(FAULTS)])
        mixed = random.Random(seed).sample(made.standings, len(made.standings))
        assert told(mixed) == told(made.standings)


def without_recorders(made: World, ranks: set[int]) -> list[Standing]:
    """The standings without some ranks' flight recorders."""
    return [replace(one, collectives=None) if one.rank in ranks else one for one in made.standings]


@pytest.mark.parametrize("fault", CERTAIN)
def test_a_recorder_that_cannot_be_read_blames_nobody_else(fault: str, script: Path) -> None:
    """With any recorders missing, no innocent rank is named."""
    for seed in SEEDS:
        made = world(seed, script, fault)
        draw = random.Random(seed)
        every = range(len(made.standings))
        for count in {1, draw.randrange(1, len(every) + 1), len(every)}:
            standings = without_recorders(made, set(draw.sample(every, count)))
            assert set(told(standings).culprits) <= made.fault.ranks, (seed, count)


@pytest.mark.parametrize("fault", CERTAIN)
def test_ranks_of_which_nothing_is_known_are_left_out(fault: str, script: Path) -> None:
    """Their stacks and recorders can't be read."""
    for seed in SEEDS:
        made = world(seed, script, fault)
        rank = random.Random(seed).randrange(len(made.standings))
        standings = [
            replace(one, collectives=None, frames=()) if one.rank == rank else one
            for one in made.standings
        ]
        assert set(told(standings).culprits) <= made.fault.ranks, seed


def test_stacks_alone_name_the_rank(script: Path) -> None:
    """Some torch versions and backends have no recorder."""
    for fault in ("asleep", "collate", "loader", "busy", "stopped", "out of data"):
        for seed in SEEDS:
            made = world(seed, script, fault)
            report = told(without_recorders(made, set(range(len(made.standings)))))
            if fault != "out of data" or len(made.standings) > 2:
                assert frozenset(report.culprits) == made.fault.ranks, (fault, seed)


@pytest.mark.parametrize(
    ("fault", "quiet", "expected"),
    [
        ("stopped", 1, True),
        ("gone", 10, True),
        ("extra", 1, True),
        ("out of data", 1, True),
        ("asleep", 9.9, False),
        ("asleep", 10, True),
        ("collate", 10, True),
        ("loader", 10, True),
        ("busy", 100, False),
        ("person", 100, False),
        ("traced", 100, False),
        ("network", 100, False),
    ],
)
def test_what_is_proof(fault: str, quiet: float, expected: bool, script: Path) -> None:
    """Two reports that agree are proof, after enough quiet time."""
    for seed in SEEDS[:10]:
        made = world(seed, script, fault)
        assert not told(made.standings, quiet * LIMIT).is_proof
        assert told_again(made.standings, quiet * LIMIT).is_proof is expected, seed


def test_a_rank_that_serves_is_left_alone(script: Path) -> None:
    """Before the first step, rank 0 may wait for requests and the others for it."""
    made = world(1, script, "asleep")
    idle = [replace(standing, step=0) for standing in made.standings]
    report = told_again(idle, 100 * LIMIT)
    assert frozenset(report.culprits) == made.fault.ranks
    assert not report.is_proof


def test_what_has_moved_meanwhile_is_no_proof(script: Path) -> None:
    """A new step, phase, collective, or line of the culprit."""
    made = world(1, script, "asleep")
    (bad,) = made.fault.ranks
    first = told(made.standings, 10 * LIMIT)
    culprit = made.standings[bad]
    line = Frame(culprit.frames[-1].file, 15, "main", "loss = model(batch)")
    for changed in (
        replace(culprit, step=4),
        replace(culprit, phase=Phase.SAVING),
        replace(culprit, frames=(*culprit.frames[:-1], line)),
        replace(culprit, cpu=1.0),
    ):
        now = [changed if one.rank == bad else one for one in made.standings]
        assert not attributed(now, 10 * LIMIT, LIMIT, first).is_proof
    assert attributed(made.standings, 10 * LIMIT, LIMIT, first).is_proof


C10D = "/site/torch/distributed/distributed_c10d.py"


def stack(*calls: tuple[str, str, str]) -> tuple[Frame, ...]:
    """Frames of (file, function, source)."""
    return tuple(Frame(file, 1, function, source) for file, function, source in calls)


WAITS = stack(("/u/a.py", "main", "loss.backward()"), (C10D, "all_reduce", "work.wait()"))
AWAY = stack(("/u/a.py", "main", "time.sleep(9)"))


def standing(rank: int, **changes: object) -> Standing:
    """A rank watched for two seconds without any movement."""
    return replace(Standing(rank, pid=rank + 1, window=2.0, own_files=("/u/a.py",)), **changes)


def entry(number: int, kind: str = "all_reduce", **changes: object) -> Collective:
    """A collective of all ranks."""
    return replace(Collective(number, kind, ((4,),), ("Float",), "0 default_pg"), **changes)


def done(number: int) -> tuple[Collective, ...]:
    """The collectives up to a number, all completed."""
    return tuple(entry(at, is_retired=True) for at in range(1, number + 1))


def test_a_chain_through_groups_is_followed_to_its_end() -> None:
    """Rank 3 waits for 2 in its tensor group, the others for 3: rank 2 is named."""
    data, tensor = {"group": "1 data", "ranks": (1, 3)}, {"group": "2 tensor", "ranks": (2, 3)}
    ranks = [
        standing(0, frames=WAITS, collectives=(entry(1),)),
        standing(1, frames=WAITS, collectives=(entry(1, **data),)),
        standing(2, frames=AWAY, collectives=(entry(1, **tensor, is_retired=True),)),
        standing(
            3, frames=WAITS, collectives=(entry(1, **tensor, is_retired=True), entry(2, **tensor))
        ),
    ]
    ranks[0] = replace(ranks[0], collectives=(entry(1, group="3 data", ranks=(0, 1)),))
    ranks[1] = replace(
        ranks[1], collectives=(entry(1, **data), entry(1, group="3 data", ranks=(0, 1)))
    )
    report = told(ranks)
    assert (report.kind, report.culprits) == (HangKind.ABSENT, (2,))
    assert report.collective == entry(2, **tensor)


def test_messages_of_a_pipeline_are_followed() -> None:
    """Stage 2 waits for 1, and 1 for 0, which is elsewhere."""
    ranks = [
        standing(0, frames=AWAY, collectives=(entry(1, is_retired=True),)),
        standing(1, frames=WAITS, collectives=(entry(1, "recv 1<-0", is_message=True),)),
        standing(2, frames=WAITS, collectives=(entry(1, "recv 2<-1", is_message=True),)),
    ]
    assert told(ranks).culprits == (0,)


def test_a_recorder_that_has_forgotten_tells_nothing_of_a_group() -> None:
    """Rank 1's recorder has dropped the group's collectives."""
    group = {"group": "1 tensor", "ranks": (0, 1)}
    late = tuple(entry(number, is_retired=True) for number in range(300, 310))
    ranks = [
        standing(0, frames=WAITS, collectives=(*late, entry(4, **group))),
        standing(1, frames=WAITS, collectives=late),
    ]
    assert told(ranks).culprits == ()


def test_collectives_of_other_sizes_are_told_from_lists_that_may_differ() -> None:
    """An all_reduce needs equal sizes on all ranks; gathered lists don't."""
    for kind, expected in (("all_reduce", HangKind.DIVERGENT), ("all_gather", HangKind.UNKNOWN)):
        ranks = [
            standing(rank, frames=WAITS, collectives=(*done(3), entry(4, kind, shapes=((size,),))))
            for rank, size in enumerate([4, 4, 7])
        ]
        report = told(ranks)
        assert report.kind is expected
        assert report.culprits == ((2,) if expected is HangKind.DIVERGENT else ())


def test_a_rank_that_has_not_begun_is_not_gone() -> None:
    """The others wait for it in the creation of process groups."""
    meets = stack(("/u/a.py", "main", "init()"), (C10D, "init_process_group", "store.wait()"))
    ranks = [
        standing(0, frames=meets, collectives=()),
        standing(1, pid=0, state="", phase=Phase.STARTING),
    ]
    report = told(ranks)
    assert (report.kind, report.culprits) == (HangKind.ABSENT, (1,))


def test_an_unreachable_node() -> None:
    """Its ranks count as gone."""
    ranks = [
        standing(0, frames=WAITS, collectives=(*done(3), entry(4))),
        Standing(1, host="b", state="", problem="its launcher doesn't answer"),
    ]
    report = told(ranks)
    assert (report.kind, report.culprits) == (HangKind.GONE, (1,))


def test_a_process_that_has_ended_after_its_script_has_left() -> None:
    """Rank 1 had less data than rank 0."""
    ranks = [
        standing(0, frames=WAITS, collectives=(*done(3), entry(4))),
        standing(1, phase=Phase.ENDED, state=""),
    ]
    report = told(ranks)
    assert (report.kind, report.culprits) == (HangKind.ENDED, (1,))


def test_nobody_waits() -> None:
    """Work, idleness and idle data loaders, without a rank that waits for another."""
    loader = "/site/torch/utils/data/dataloader.py"
    loads = stack(("/u/a.py", "main", "for batch in loader:"), (loader, "_try_get_data", "get("))
    idle = (Child(9, "python", "S", 0.0),)
    moving = (Child(9, "python", "R", 0.9),)
    both = [
        ([standing(rank, frames=AWAY) for rank in (0, 1)], HangKind.IDLE, ()),
        ([standing(rank, frames=AWAY, cpu=1.9) for rank in (0, 1)], HangKind.BUSY, ()),
        ([standing(rank) for rank in (0, 1)], HangKind.UNKNOWN, ()),
        ([standing(rank, frames=loads, children=idle) for rank in (0, 1)], HangKind.LOADER, (0, 1)),
        ([standing(rank, frames=loads, children=moving) for rank in (0, 1)], HangKind.BUSY, ()),
    ]
    for ranks, kind, culprits in both:
        report = told(ranks)
        assert (report.kind, report.culprits) == (kind, culprits)


def test_a_spinning_rank_that_waits_proves_nothing() -> None:
    """On devices, ranks in a collective use a core each."""
    ranks = [
        standing(rank, frames=WAITS, cpu=2.0, utilization=1.0, collectives=(*done(3), entry(4)))
        for rank in (0, 1)
    ]
    ranks.append(standing(2, frames=AWAY, utilization=0.0, collectives=done(3)))
    report = told(ranks)
    assert (report.kind, report.culprits, report.waiting) == (HangKind.ABSENT, (2,), (0, 1))
