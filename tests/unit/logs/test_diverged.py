"""Which rank is reported if watchdogs show ranks in different operations."""

from __future__ import annotations

import pytest
from support.logs import entry_of, judged


def waits(rank: int, work: str, group: str = "", prefix: str = "[rank{0}]:") -> str:
    """A watchdog's line on a rank's operation, and on its group if given."""
    head = prefix.format(rank) + "[E816 01:45:40.1 ProcessGroupNCCL.cpp:607] "
    number, operation, size = work.split()
    line = (
        f"{head}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
        f"SeqNum={number}, OpType={operation}, NumelIn={size}, NumelOut={size}, "
        "Timeout(ms)=600000) ran for 600026 milliseconds before timing out.\n"
    )
    if group:
        line += f"{head}[{group} Rank {rank}] Timeout at NCCL work: {number}, last enqueued: 9\n"
    return line


PARTED = (waits(7, "80 BROADCAST 5056"), waits(3, "80 ALLREDUCE 21"), waits(4, "80 ALLREDUCE 21"))


@pytest.mark.parametrize("logs", [("".join(PARTED),), PARTED])
def test_ranks_that_have_parted_are_told(logs: tuple[str, ...]) -> None:
    """Rank by rank, from one file or several; the watchdogs' aborts are consequences."""
    judgement = judged(*logs)
    assert entry_of(judgement) == "collectives-differ"
    assert judgement.root is not None
    assert judgement.root.finding.record.message == (
        "ranks are in different collectives: ranks 3, 4 in ALLREDUCE 80 (21 elements); "
        "rank 7 in BROADCAST 80 (5,056 elements)"
    )
    assert {failure.finding.record.rank for failure in judgement.failures[1:]} == {3, 4, 7}


@pytest.mark.parametrize(
    ("here", "there", "differ"),
    [
        (waits(0, "8 ALLREDUCE 5"), waits(1, "8 ALLREDUCE 5"), False),
        (waits(0, "8 ALLREDUCE 5"), waits(1, "8 ALLREDUCE 6"), True),
        # Nobody completes an all-reduce alone; a broadcast's source waits for nobody.
        (waits(0, "8 ALLREDUCE 5"), waits(1, "9 BROADCAST 5"), True),
        (waits(0, "8 BROADCAST 5"), waits(1, "9 ALLREDUCE 5"), False),
        (waits(0, "8 ALLREDUCE 5"), waits(1, "9 ALLREDUCE 5"), False),
        # All-to-all may have different sizes, or two ranks only.
        (waits(0, "8 ALLTOALL_BASE 5"), waits(1, "8 ALLTOALL_BASE 6"), False),
        (waits(0, "8 SEND 5"), waits(1, "8 RECV 5"), False),
        # The message names the rank; no prefix does.
        (waits(0, "8 ALLREDUCE 5", "", ""), waits(1, "8 BROADCAST 5", "", ""), True),
        (
            waits(0, "8 ALLREDUCE 5", "PG ID 0 PG GUID 0(default_pg)"),
            waits(1, "8 BROADCAST 5"),
            True,
        ),
        (waits(0, "8 ALLREDUCE 5", "PG 0 (default_pg)"), waits(1, "8 BROADCAST 5"), True),
        (waits(0, "8 ALLREDUCE 5", "PG ID 1 PG GUID 3(dp)"), waits(1, "8 BROADCAST 5"), False),
        (
            waits(0, "8 ALLREDUCE 5", "PG ID 1 PG GUID 3(dp)"),
            waits(1, "8 BROADCAST 5", "PG ID 2 PG GUID 3(dp)"),
            True,
        ),
        (
            waits(0, "8 ALLREDUCE 5", "PG ID 1PG GUID 3(dp)"),
            waits(1, "8 BROADCAST 5", "PG ID 1PG GUID 4(dp)"),
            False,
        ),
        # Up to torch 2.3 group numbers are local to a process.
        (waits(0, "8 ALLREDUCE 5", "PG 1"), waits(1, "8 BROADCAST 5", "PG 1"), False),
    ],
)
def test_only_what_belongs_together_is_compared(here: str, there: str, differ: bool) -> None:
    """Operations match by number and process group."""
    assert entry_of(judged(here + there)) == (
        "collectives-differ" if differ else "nccl-collective-timeout"
    )


def test_a_rank_that_failed_by_itself_is_the_cause() -> None:
    """The others' positions follow from its failure."""
    failed = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x\nKeyError: 1\n'
    judgement = judged("".join(PARTED), failed)
    assert judgement.root is not None
    assert judgement.root.finding.record.exception == "builtins.KeyError"


COMMON = "".join(waits(rank, "66 ALLREDUCE 2621") for rank in (0, 1, 3))


@pytest.mark.parametrize(
    ("odd", "is_odd"),
    [
        ("68 ALLREDUCE 1", True),
        ("64 BROADCAST 2621", True),
        ("64 _ALLGATHER_BASE 2621", False),
        ("64 ALLGATHER 2621", True),
        ("65 ALLREDUCE 2621", False),
        ("68 SEND 1", False),
    ],
)
def test_the_only_rank_in_another_operation(odd: str, is_odd: bool) -> None:
    """Above or below the others' number; the number alone may be the network's fault."""
    found = judged(waits(2, odd) + COMMON)
    assert entry_of(found) == ("collectives-differ" if is_odd else "nccl-collective-timeout")


def test_two_halves_have_no_odd_rank() -> None:
    """Ranks of other process groups count their operations by themselves."""
    others = waits(2, "68 ALLREDUCE 1") + waits(4, "68 ALLREDUCE 1")
    assert entry_of(judged(COMMON + others)) == "nccl-collective-timeout"
