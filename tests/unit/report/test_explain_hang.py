"""Reports on a stalled run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safe_launch.core.quantities import ranks_text
from safe_launch.evidence.failure_record import Frame
from safe_launch.hangs.attribution import attributed
from safe_launch.hangs.report import HangKind, HangReport
from safe_launch.hangs.standing import Child, Collective, Standing
from safe_launch.progress.board import Phase
from safe_launch.report import explain_hang
from safe_launch.system import terminal

GRAPH = "/site/lib/python3.11/site-packages/torch/autograd/graph.py"
BACKWARD = (
    Frame("/u/train.py", 30, "main", "loss.backward()"),
    Frame(GRAPH, 979, "_engine_run_backward", "return engine("),
)
COLLATE = (
    Frame("/u/train.py", 28, "main", "for batch in loader:"),
    Frame("/u/data.py", 88, "collate", "lock.acquire()"),
)
ENGINE = "in _engine_run_backward (torch/autograd/graph.py:979)"
OWN = ("/u/train.py", "/u/data.py")
REDUCE = Collective(412, "all_reduce", ((12480,),), ("Float",), "0 default_pg")


def waiting(rank: int, **changes: object) -> Standing:
    """A rank waiting in the backward pass."""
    one = Standing(rank, pid=100 + rank, phase=Phase.TRAINING, window=2.0, own_files=OWN)
    return replace(one, **{"frames": BACKWARD, "collectives": (REDUCE,), **changes})


def away(rank: int, **changes: object) -> Standing:
    """A rank in the user's collate function."""
    done = (replace(REDUCE, number=411, is_retired=True),)
    return waiting(rank, **{"frames": COLLATE, "collectives": done, **changes})


def told(*standings: Standing) -> HangReport:
    """The first report after 64 seconds."""
    return attributed(standings, 64.0, 60.0)


def test_the_first_line_matters_most() -> None:
    """Which rank is where, idle, and which collective the others wait in."""
    report = told(away(1), *(waiting(rank) for rank in (0, *range(2, 8))))
    assert explain_hang.headline(report) == (
        "nothing has moved for 64 s: rank 1 is in collate at /u/data.py:88 (idle); ranks 0, 2 to 7 "
        "wait in backward's all_reduce 412 (12,480 floats)"
    )
    assert explain_hang.rows(report)[:2] == [
        ("at", "rank 1: /u/data.py:88 in collate: lock.acquire()"),
        ("at", f"ranks 0, 2 to 7: /u/train.py:30 in main: loss.backward()\n{ENGINE}"),
    ]
    assert explain_hang.rows(report)[-1][0] == "do"


@pytest.mark.parametrize(
    ("culprit", "expected"),
    [
        ({"cpu": 0.4, "io": 3 << 20}, "rank 1 works in collate at /u/data.py:88 (0.4 s of pro"),
        ({"state": "T", "frames": (), "collectives": None}, "rank 1 is stopped (SIGSTOP), process"),
        ({"state": "t"}, "rank 1 is held by a debugger, process 101"),
        ({"state": "", "frames": (), "collectives": None}, "rank 1 is gone"),
        ({"phase": Phase.ENDED, "frames": ()}, "rank 1 has left the training: its script"),
        ({"host": "b"}, "rank 1 on b is in collate"),
    ],
)
def test_what_a_culprit_does(culprit: dict[str, object], expected: str) -> None:
    """Each kind has a phrase; with several hosts, the host is named."""
    text = explain_hang.headline(told(waiting(0), away(1, **culprit)))
    assert f": {expected}" in text
    assert text.endswith("; rank 0 waits in backward's all_reduce 412 (12,480 floats)")


def test_ranks_in_different_collectives() -> None:
    """Both are reported, each with its own."""
    other = Collective(412, "broadcast", ((1,),), ("Long",), "0 default_pg")
    report = told(waiting(0), waiting(1), away(2, collectives=(other,)))
    assert explain_hang.headline(report) == (
        "nothing has moved for 64 s: ranks are in different collectives: rank 2 is in collate at "
        "/u/data.py:88, waiting in broadcast 412 (1 long); ranks 0, 1 wait in backward's "
        "all_reduce 412 (12,480 floats)"
    )


def test_a_loader_and_its_processes() -> None:
    """Each child has its line; equal ones are merged."""
    frames = (
        COLLATE[0],
        Frame("/site/torch/utils/data/dataloader.py", 1291, "_try_get_data", "queue.get("),
    )
    item = (Frame("/u/data.py", 12, "__getitem__", "x.get()"),)
    children = (
        Child(7, "python", "S", 0.0, item),
        Child(8, "python", "S", 0.0, item),
        Child(9, "python", "Z", 0.0),
    )
    report = told(waiting(0), away(1, frames=frames, children=children))
    assert report.kind is HangKind.LOADER
    assert [text for label, text in explain_hang.rows(report) if label == "child"] == [
        "process 7 and 1 more of rank 1, python, is idle: /u/data.py:12 in __getitem__: x.get()",
        "process 9 of rank 1, python, has died",
    ]


def test_what_could_not_be_asked_is_told_once() -> None:
    """The number of affected ranks doesn't matter."""
    old = "its collectives aren't known: torch 2.7 or newer tells"
    report = told(*(waiting(rank, collectives=None, problem=old) for rank in range(4)), away(4))
    notes = [text for label, text in explain_hang.rows(report) if label == "note"]
    assert notes == [f"ranks 0 to 3: {old}"]


def test_nobody_is_blamed_where_all_wait() -> None:
    """All ranks are in the same collective."""
    report = told(*(waiting(rank) for rank in range(3)))
    assert report.culprits == ()
    assert explain_hang.headline(report) == (
        "nothing has moved for 64 s: all_reduce 412 (12,480 floats) isn't done, though no rank is "
        "known to be missing in it"
    )


def test_it_is_short_with_many_ranks_and_groups() -> None:
    """64 ranks in a hundred groups, all in different places."""
    standings = []
    for rank in range(64):
        line = Frame("/u/train.py", 100 + rank, "main", f"step_{rank}()")
        group = f"{rank} part{rank}"
        many = tuple(
            Collective(number, "all_reduce", group=group, ranks=(rank,)) for number in range(100)
        )
        standings.append(waiting(rank, frames=(line,), collectives=many, problem=f"{rank}"))
    lines = terminal.table(explain_hang.rows(told(*standings)))
    assert len(lines) <= 30
    assert len(explain_hang.headline(told(*standings))) < 400


def test_control_characters_of_workers_are_left_out() -> None:
    """Source text and names may contain any characters."""
    frame = Frame("/u/data.py", 3, "f\x1b[2J", "x = '\x1b[31m'")
    rows = explain_hang.rows(told(waiting(0), away(1, frames=(frame,))))
    assert not any("\x1b" in text for _, text in rows)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([3], "rank 3"),
        ([1, 0], "ranks 0, 1"),
        ([0, 2, 3, 4, 9], "ranks 0, 2 to 4, 9"),
        (range(0, 64, 2), "32 ranks (0, 2, 4, 6, 8, ...)"),
    ],
)
def test_ranks_in_words(ranks: list[int], expected: str) -> None:
    """Ranges are as short as possible."""
    assert ranks_text(ranks) == expected


@pytest.mark.parametrize("kind", HangKind)
def test_waiting_cant_help_or_the_run_goes_on(kind: HangKind) -> None:
    """Proof decides between the two."""
    report = HangReport(kind, (1,), (0,), None, (waiting(0), away(1)), is_proof=False, quiet=99.0)
    (open_advice,) = (text for label, text in explain_hang.rows(report) if label == "do")
    proven = replace(report, is_proof=True)
    (advice,) = (text for label, text in explain_hang.rows(proven) if label == "do")
    assert "waiting can't help" not in open_advice
    assert open_advice.endswith("The run continues meanwhile")
    assert advice.startswith("waiting can't help: ")
    assert "continues meanwhile" not in advice
