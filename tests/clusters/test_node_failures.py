"""Launchers and workers of two nodes are killed, cut off or stopped: both nodes end cleanly."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from support.entries import ENTRY
from support.hosts import needs_hosts, network
from support.jobs import FAST, SHORT, Launcher, ended, exist, gone, job
from support.stacks import CURRENT, ROOT, SCENARIOS
from support.trainings import TRAINER, reference
from support.waiting import wait_for

pytestmark = needs_hosts
STAYS = ROOT / "tests" / "programs" / "stays.py"
RETRY = 75


@contextmanager
def staying(
    folder: Path, failures: int = 0, nodes: int = 2, own: Sequence[str] = ()
) -> Iterator[list[Launcher]]:
    """A job of `stays.py` with a catalogue in which its failure is retried."""
    (folder / "house").mkdir()
    (folder / "house" / "bad-weather.md").write_text(ENTRY.format(kind="transient", more=""))
    own = (*FAST, "--catalogue=house", *own)
    names = ("alpha", "beta", "gamma", "delta")[:nodes]
    with (
        network(*names) as hosts,
        job(folder, hosts, STAYS, folder, failures, own=own) as launchers,
    ):
        yield launchers


@dataclass(frozen=True)
class Moment:
    """The moment of a kill.

    Attributes:
        name: for the test's id.
        failures: earlier attempts that fail by themselves.
        attempt: the attempt of the kill.
        has_come: whether it has come, for a job in a folder.
    """

    name: str
    failures: int
    attempt: int
    has_come: Callable[[list[Launcher], Path], bool]


def runs(attempt: int) -> Callable[[list[Launcher], Path], bool]:
    """Whether all workers of an attempt are running."""
    return lambda _, folder: exist(folder, f"ready-{attempt}-{{}}", (0, 1))()


MOMENTS = {
    one.name: one
    for one in (
        Moment("start", 0, 0, lambda launchers, _: launchers[1].says("joined node 0")),
        Moment("training", 0, 0, runs(0)),
        Moment("between", 1, 1, lambda launchers, _: launchers[0].says("is transient")),
        Moment("again", 1, 1, runs(1)),
    )
}


@pytest.mark.parametrize(
    ("killed", "number", "code"), [(0, signal.SIGKILL, -9), (1, signal.SIGTERM, 143)]
)
def test_a_launcher_goes_while_they_join(
    killed: int, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Without node 0 all nodes end at once; another node may return for a while."""
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, STAYS, tmp_path, 0, own=["--nnodes=3", SHORT]) as launchers,
    ):
        wait_for(lambda: launchers[0].says("2 of 3 nodes have joined"))
        launchers[killed].send(number)
        codes = [RETRY, RETRY]
        codes[killed] = code
        ended(launchers, *codes)
        if killed:
            assert launchers[0].says("beta has left again .* ranks 1, 2 never joined; gave up")
        else:
            assert launchers[1].says("ended before all nodes had joined: its launcher has ended")


@pytest.mark.parametrize("name", ["start", "training", "between"])
@pytest.mark.parametrize("killed", [0, 1])
def test_a_launcher_is_killed(killed: int, name: str, tmp_path: Path) -> None:
    """The other launcher names the lost node and ends with 75; no process is left."""
    moment = MOMENTS[name]
    with staying(tmp_path, moment.failures) as launchers:
        wait_for(lambda: moment.has_come(launchers, tmp_path))
        launchers[killed].send(signal.SIGKILL)
        codes = [RETRY, RETRY]
        codes[killed] = -signal.SIGKILL
        ended(launchers, *codes)
        words = launchers[1 - killed].words()
        assert f"node {killed} (" in words
        assert "is lost: its launcher has ended" in words


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stop_between_two_attempts(stopped: int, tmp_path: Path) -> None:
    """Without workers the launcher ends at once, and the other with the same code."""
    with staying(tmp_path, failures=1) as launchers:
        wait_for(lambda: launchers[0].says("is transient"))
        launchers[stopped].send(signal.SIGTERM)
        ended(launchers, 143)
        assert not any(tmp_path.glob("ready-1-*")) or stopped == 1


@pytest.mark.parametrize(
    ("killed", "name"), [(1, "start"), (0, "training"), (1, "training"), (1, "again")]
)
def test_a_worker_is_killed(killed: int, name: str, tmp_path: Path) -> None:
    """All nodes end with 137, and node 0 names the rank."""
    moment = MOMENTS[name]
    with staying(tmp_path, moment.failures) as launchers:
        if name == "start":
            wait_for(lambda: launchers[killed].workers() != [])
        else:
            wait_for(lambda: moment.has_come(launchers, tmp_path))
        for pid in launchers[killed].workers():
            psutil.Process(pid).kill()
        ended(launchers, 137)
        assert launchers[0].says(f"rank {killed} (on beta )?was ended by SIGKILL")
        assert launchers[1].says(f"node 0 ended the run: failed: rank {killed} .*exit code 137")


def test_a_launcher_that_hangs_counts_as_lost(tmp_path: Path) -> None:
    """SIGSTOP of node 1's launcher: node 0's failure ends the run; after SIGCONT it ends, too."""
    with staying(tmp_path, own=[SHORT]) as (head, other):
        wait_for(exist(tmp_path, "ready-0-{}", (0, 1)))
        other.send(signal.SIGSTOP)
        (worker,) = head.workers()
        psutil.Process(worker).kill()
        ended_alone(head, RETRY)
        assert head.says(r"node 1 \(\S+\) is lost: it no longer answers")
        assert head.says("also rank 0 was ended by SIGKILL")
        other.send(signal.SIGCONT)
        ended([head, other], RETRY)


def test_node_0_hangs(tmp_path: Path) -> None:
    """SIGSTOP of node 0's launcher: node 1's failure gets no answer and ends it."""
    with staying(tmp_path, own=[SHORT]) as (head, other):
        wait_for(exist(tmp_path, "ready-0-{}", (0, 1)))
        head.send(signal.SIGSTOP)
        (worker,) = other.workers()
        psutil.Process(worker).kill()
        ended_alone(other, RETRY)
        assert other.says(r"node 0 \(\S+\) is lost: it no longer answers")
        head.send(signal.SIGCONT)
        ended([head, other], RETRY)


def ended_alone(launcher: Launcher, code: int) -> None:
    """Waits for one launcher's end with its code and without its workers."""
    assert launcher.process.wait() == code
    gone([launcher])


def test_a_stop_that_comes_with_the_order_to_start(tmp_path: Path) -> None:
    """A slow launcher reads the next attempt's start and its stop together."""
    with staying(tmp_path, failures=1) as (head, other):
        wait_for(lambda: head.says("is transient"))
        other.send(signal.SIGSTOP)
        wait_for(exist(tmp_path, "ready-1-{}", (0,)))  # a forked child looks like it at first
        (worker,) = head.workers()
        psutil.Process(worker).kill()
        wait_for(lambda: head.workers() == [])
        other.send(signal.SIGCONT)
        ended([head, other], 137)
        assert not other.says("is still running after")
        assert not head.says("is lost")


def test_node_0_is_cut_off(tmp_path: Path) -> None:
    """Its interface goes down during training: both end with 75 within the node timeout."""
    with staying(tmp_path, own=[SHORT]) as launchers:
        wait_for(exist(tmp_path, "ready-0-{}", (0, 1)))
        launchers[0].host.unplug()
        ended(launchers, RETRY)
        for one, lost in zip(launchers, (1, 0), strict=True):
            assert one.says(rf"node {lost} \(\S+\) is lost: it is no longer reachable")


def test_one_of_four_is_cut_off(tmp_path: Path) -> None:
    """The network drops it silently: the others end, too, and name it."""
    with staying(tmp_path, nodes=4, own=[SHORT]) as launchers:
        wait_for(exist(tmp_path, "ready-0-{}", range(4)))
        launchers[2].host.weather(loss=1)
        ended(launchers, RETRY)
        assert launchers[0].says(r"node 2 \(\S+\) is lost: it is no longer reachable")
        assert launchers[3].says(r"node 0 ended the run: .*node 2 \(\S+\) is lost")


def test_the_rest_goes_on_with_the_same_global_batch(tmp_path: Path) -> None:
    """With --nnodes 1:2 node 0 continues with twice the accumulation and equal losses."""
    script = SCENARIOS / "hf_held.py"
    (tmp_path / "go").touch()
    told = (*TRAINER, f"--marks={tmp_path}")
    expected = reference(CURRENT, script, *told, "--per_device_train_batch_size=8")
    for mark in tmp_path.iterdir():
        mark.unlink()
    target = tmp_path / "losses.json"
    command = (script, *told, "--per_device_train_batch_size=4", f"--loss_file={target}")
    own = (*FAST, "--nnodes=1:2", SHORT)
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *command, own=own) as (head, other),
    ):
        wait_for(exist(tmp_path, "held-{}", (0, 1)))
        other.host.weather(loss=1)
        wait_for(lambda: head.says("relaunching: attempt 2"))
        (tmp_path / "go").touch()
        ended([head, other], 0, RETRY)
        assert json.loads(target.read_text()) == pytest.approx(expected, rel=1e-4)
        assert "accumulation: 1 -> 2" in head.words()
