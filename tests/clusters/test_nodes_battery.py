"""The launcher's promises on two real nodes: codes, the right rank, signals, logs."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from support.entries import ENTRY
from support.hosts import needs_hosts, network
from support.jobs import FAST, PORT, begin, ended, ending, exist, job, run_folders
from support.stacks import ROOT
from support.waiting import wait_for

pytestmark = needs_hosts
PROGRAMS = ROOT / "tests" / "programs"
FAILS, STUBBORN = PROGRAMS / "fails.py", PROGRAMS / "stubborn.py"


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("1:raise", 1, "rank 1 on beta raised ValueError"),
        ("1:exit42", 42, "rank 1 on beta left with exit code 42"),
    ],
)
def test_a_bug_on_node_1_ends_both(how: str, code: int, words: str, tmp_path: Path) -> None:
    """No relaunch; the worker's code on both; explained on node 0, one line on node 1."""
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, FAILS, how, own=FAST) as (head, other),
    ):
        ended([head, other], code)
        assert words in head.words()
        source = "raise ValueError(" if how == "1:raise" else "sys.exit("
        lines = enumerate(FAILS.read_text().splitlines(), 1)
        line = next(number for number, text in lines if text.strip().startswith(source))
        if how == "1:raise":
            assert f'  File "{FAILS}", line {line}, in <module>' in head.said()
            assert head.said().endswith("\nValueError: the bug of rank 1\n")
        else:
            assert f"{FAILS}:{line} in <module>: sys.exit(" in head.words()
        assert f"node 0 ended the run: failed: {words}" in other.words()
        for one in (head, other):
            assert "relaunching" not in one.words()
    (run,) = run_folders(tmp_path)
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    told = ("failures.json", "observed.json", "plan.json", "progress-0.json", "progress-1.json")
    files = [f"attempt-1/{name}" for name in (*told, "rank-0.log", "rank-1.log")]
    expected = [*files, "launcher-0.json", "launcher-1.json", "outcome.json", "request.json"]
    assert names == expected, "both nodes write into one folder that they share"
    told = json.loads((run / "attempt-1" / "failures.json").read_text())["findings"][0]["record"]
    assert (told["rank"], told["host"], told["exit_code"]) == (1, "beta", code)


def test_a_cause_on_node_1_whose_record_comes_last(tmp_path: Path) -> None:
    """Rank 3's failure follows, is reported first, and stops all: rank 2 is named."""
    program = (PROGRAMS / "fails_slowly.py", "overtaken")
    own = ["--leave-timeout=1", "--nproc=2"]
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *program, own=own, env={"CAUSE": 2}) as (head, other),
    ):
        ended([head, other], 1)
        assert "attempt 1: failed: rank 2 on beta raised CauseError" in head.words()
        assert head.said().endswith("\nCauseError: the cause\n")


def test_torchrun_leaves_the_other_node_waiting(tmp_path: Path) -> None:
    """For comparison: its code is 1, and node 0, with a stuck worker, isn't notified."""
    with network("alpha", "beta") as hosts:
        launchers = [
            begin(
                host,
                tmp_path,
                "torchrun",
                "--nnodes=2",
                f"--node-rank={rank}",
                "--master-addr=alpha",
                f"--master-port={PORT}",
                "--nproc-per-node=1",
                FAILS,
                "1:exit42",
                env={"READY": tmp_path / "all"},
            )
            for rank, host in enumerate(hosts)
        ]
        with ending(launchers):
            assert launchers[1].process.wait() == 1
            assert launchers[0].process.poll() is None
            for process in hosts[0].processes():
                process.kill()


@pytest.mark.alone
@pytest.mark.parametrize(("first", "delay"), [(0, 0.05), (1, 0.02), (1, 0.05)])
def test_names_the_rank_that_failed_first(first: int, delay: float, tmp_path: Path) -> None:
    """The first rank to fail is named, whichever node it is on.

    The report takes longer than the second failure: 100 ms.
    """
    plan = (f"{first}:raise", f"{1 - first}:{delay}@exit3")
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, FAILS, *plan, own=FAST, env={"READY": tmp_path / "all"}) as launchers,
    ):
        hosts[1].weather(delay=0.1)
        ended(launchers, 1)
        assert launchers[0].says(rf"attempt 1: failed: rank {first} (on beta )?raised ValueError")


@pytest.mark.parametrize(
    ("number", "told", "code"),
    [(signal.SIGTERM, (0,), 143), (signal.SIGTERM, (0, 1), 143), (signal.SIGINT, (1,), 130)],
)
def test_a_stop_of_one_launcher_stops_both(
    number: signal.Signals, told: tuple[int, ...], code: int, tmp_path: Path
) -> None:
    """Both nodes' workers get the signal and their grace period; both codes are 128 + N."""
    command = (STUBBORN, tmp_path, number.name)
    with network("alpha", "beta") as hosts, job(tmp_path, hosts, *command) as launchers:
        wait_for(exist(tmp_path, "ready-{}", (0, 1)))
        for one in told:
            launchers[one].send(number)
        ended(launchers, code)
        for rank in (0, 1):
            assert (tmp_path / f"goodbye-{rank}").read_text() == "had time to clean up"
        assert f"attempt 1: stopped by {number.name}" in launchers[0].words()


def test_workers_that_ignore_signals(tmp_path: Path) -> None:
    """Each launcher escalates from INT over TERM to KILL; SIGUSR1 is for its handlers."""
    command = (STUBBORN, tmp_path)
    own = ("--interrupt-timeout=2", "--shutdown-timeout=2")
    with network("alpha", "beta") as hosts, job(tmp_path, hosts, *command, own=own) as launchers:
        wait_for(exist(tmp_path, "ready-{}", (0, 1)))
        for one in launchers:
            one.send(signal.SIGUSR1)
        noted = tmp_path / "signals-0"
        wait_for(lambda: noted.exists() and noted.read_text() == "SIGUSR1\n")
        wait_for(lambda: launchers[1].says("isn't passed on: rank 1 has no handler for it"))
        launchers[1].send(signal.SIGINT)
        ended(launchers, 130)
        for rank, one in enumerate(launchers):
            own_signals = (tmp_path / f"signals-{rank}").read_text().split()
            assert own_signals[-2:] == ["SIGINT", "SIGTERM"]
            still = f"rank {rank} is still running after SIGINT, SIGTERM: sending SIGKILL"
            assert still in one.words()


@pytest.mark.parametrize("told", [0, 1])
def test_a_repeated_stop_goes_on_to_the_next_step_on_both(told: int, tmp_path: Path) -> None:
    """The third is an immediate SIGKILL, despite long grace periods."""
    own = ("--interrupt-timeout=300", "--shutdown-timeout=300")
    command = (STUBBORN, tmp_path)
    with network("alpha", "beta") as hosts, job(tmp_path, hosts, *command, own=own) as launchers:
        wait_for(exist(tmp_path, "ready-{}", (0, 1)))
        for name in ("SIGINT", "SIGTERM"):
            launchers[told].send(signal.SIGINT)
            for rank in (0, 1):
                noted = tmp_path / f"signals-{rank}"
                wait_for(lambda path=noted, word=name: path.exists() and word in path.read_text())
        launchers[told].send(signal.SIGINT)
        ended(launchers, 130)


def test_a_death_after_the_end(tmp_path: Path) -> None:
    """Workers that abort at exit have finished the script: a success on both nodes."""
    command = (PROGRAMS / "ends.py", "abort-at-exit")
    each = ([], ["--log-dir=elsewhere"])
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *command, each=each) as launchers,
    ):
        ended(launchers, 0)
        assert launchers[0].says("rank 1 was ended by SIGABRT after its script had finished")
    (run,), (other,) = ((tmp_path / name).iterdir() for name in ("runs", "elsewhere"))
    assert run.name == other.name
    names = sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
    own = ["attempt-1/progress-1.json", "attempt-1/rank-1.log", "launcher-1.json"]
    assert names == own, "a folder of its own has what is node 1's"
    assert not (run / "attempt-1" / "rank-1.log").exists()


def test_nothing_is_changed_where_node_0_may_only_suggest(tmp_path: Path) -> None:
    """Node 0's --fix applies to all nodes."""
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "bad-weather.md").write_text(ENTRY.format(kind="transient", more=""))
    command = (PROGRAMS / "stays.py", tmp_path, 1)
    own = ("--catalogue=house", *FAST)
    each = (["--fix=suggest"], [])
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *command, own=own, each=each) as launchers,
    ):
        ended(launchers, 1)
        assert "not relaunched: --fix suggest allows 0" in launchers[0].words()


OTHER = "--set=gradient_checkpointing=non_reentrant"


def test_strict_refuses_on_both_nodes(tmp_path: Path) -> None:
    """A needed change ends both launchers before any worker starts."""
    arguments = ("--use_lora=True", "--gradient_checkpointing=True", "--output_dir=out")
    command = (ROOT / "tests" / "scenarios" / "hf_lora.py", *arguments)
    kwargs = '--gradient_checkpointing_kwargs={"use_reentrant": true}'
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *command, kwargs, own=["--strict", OTHER]) as launchers,
    ):
        ended(launchers, 78)
        assert "gradient_checkpointing: reentrant -> non_reentrant" in launchers[0].words()
    for run in run_folders(tmp_path):
        assert not list(run.rglob("rank-*.log"))
