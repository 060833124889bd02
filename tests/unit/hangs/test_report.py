"""A hang as failure records, which the catalogue explains live and in logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.diagnosis.root_cause import diagnose
from safe_launch.evidence.failure_record import HANG, Frame, death_text
from safe_launch.hangs.attribution import attributed
from safe_launch.hangs.report import ALONE, SENTENCES, HangKind, failure_records
from safe_launch.hangs.standing import Child, Collective, Standing
from safe_launch.progress.board import Phase
from support.hang_worlds import SOURCE, world
from support.logs import CATALOGUE, root_in

EXPLAINED = {
    "asleep": "rank-absent-from-collective",
    "busy": "rank-absent-from-collective",
    "loader": "loader-processes-stuck",
    "stopped": "worker-stopped",
    "gone": "node-lost",
    "extra": "collectives-differ",
    "out of data": "rank-out-of-data",
    "ended": "rank-out-of-data",
    "network": "collective-stuck-on-all-ranks",
}
"""The entry that explains each fault."""


@pytest.mark.parametrize("fault", EXPLAINED)
def test_each_kind_is_explained(fault: str, tmp_path: Path) -> None:
    """The live record and the logged traceback match the same entry."""
    script = tmp_path / "train.py"
    script.write_text(SOURCE)
    for seed in range(4):
        report = attributed(world(seed, script, fault).standings, 64.0, 60.0)
        found = failure_records(report, 1.0)
        live = diagnose(found, CATALOGUE).root
        assert live.entry is not None
        assert live.entry.id == EXPLAINED[fault], found[0].message
        root = root_in(found[0].traceback)
        assert root.finding.entry == live.entry, found[0].traceback
        assert root.finding.record.message.strip() == found[0].message.strip()


def test_every_kind_has_its_sentence() -> None:
    """All sentences begin differently, since signatures match beginnings."""
    assert SENTENCES.keys() == set(HangKind)
    assert len({text[:20] for text in SENTENCES.values()}) == len(SENTENCES)


MAIN = Frame("/u/train.py", 30, "main", "save()")
REDUCE = Collective(7, "all_reduce", ((4,),), ("Float",), "0 default_pg")


def standing(rank: int, **changes: object) -> Standing:
    """A training rank that waits in an all_reduce."""
    one = Standing(rank, pid=100 + rank, phase=Phase.TRAINING, step=6, window=2.0, host="b")
    one = replace(one, own_files=("/u/train.py",), frames=(MAIN,), collectives=(REDUCE,))
    return replace(one, **changes)


def test_a_record_is_of_the_culprit_alone() -> None:
    """It has the stack, step and host; the message has the others' stacks."""
    done = (replace(REDUCE, number=6, is_retired=True),)
    report = attributed([standing(0), standing(1, collectives=done), standing(2)], 64.0, 60.0)
    (record,) = failure_records(report, 5.0)
    assert (record.rank, record.host, record.pid, record.step) == (1, "b", 101, 6)
    assert (record.at, record.exception, record.frames) == (5.0, HANG, (MAIN,))
    assert record.user_files == ("/u/train.py",)
    head = f"{SENTENCES[HangKind.ABSENT]}: rank 1 in main; ranks 0, 2 in all_reduce 7 (4 floats)"
    assert record.message.splitlines() == [
        f"{head} (for 64 s)",
        "  rank 1: /u/train.py:30 in main",
        "  ranks 0, 2: /u/train.py:30 in main",
    ]
    assert death_text(record) == "rank 1 on b stood still after 6 steps"


def test_without_a_culprit_the_run_has_failed() -> None:
    """The record belongs to no rank."""
    (record,) = failure_records(attributed([standing(0), standing(1)], 64.0, 60.0), 5.0)
    assert record.rank is None
    assert death_text(record) == "the run stood still"


def test_work_that_nobody_waits_for_is_no_absence() -> None:
    """A single rank with working subprocesses keeps no rank waiting."""
    away = standing(0, cpu=1.9, collectives=())
    (record,) = failure_records(attributed([away], 64.0, 60.0), 5.0)
    assert record.message.startswith(f"{ALONE}: ")
    assert diagnose([record], CATALOGUE).root.entry is None


def test_processes_of_a_loader_show_their_own_part_of_the_stack() -> None:
    """Frames from before the fork are omitted."""
    torch = "/site/site-packages/torch/utils/data/"
    forked = (
        MAIN,
        Frame(f"{torch}_utils/worker.py", 374, "_worker_loop", "data = fetcher.fetch(index)"),
        Frame("/u/train.py", 9, "__getitem__", "with lock:"),
    )
    waits = (MAIN, Frame(f"{torch}dataloader.py", 1291, "_try_get_data", "queue.get("))
    children = tuple(Child(pid, "python", "S", 0.0, forked) for pid in (7, 8))
    report = attributed(
        [standing(0), standing(1, frames=waits, collectives=(), children=children)], 64.0, 60.0
    )
    assert report.kind is HangKind.LOADER
    assert failure_records(report, 5.0)[0].message.splitlines()[-1] == (
        "  a process of the data loader: torch/utils/data/_utils/worker.py:374 in _worker_loop, "
        "/u/train.py:9 in __getitem__"
    )
