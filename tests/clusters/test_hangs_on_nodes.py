"""A stalled run on two hosts: the rank and host that the others wait for."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.hangs import PATIENCE, SCRIPTS, line_of, reports_in
from support.hosts import needs_hosts, network
from support.jobs import FAST, SHORT, Launcher, ended, gone, job
from support.waiting import wait_for

pytestmark = needs_hosts
LOOP = SCRIPTS / "loop.py"


@contextmanager
def looping(folder: Path, *arguments: object, own: Sequence[str] = ()) -> Iterator[list[Launcher]]:
    """The loop on two hosts, with a worker on each."""
    told = (*FAST, f"--hang-report={PATIENCE}", *own)
    with (
        network("alpha", "beta") as hosts,
        job(folder, hosts, LOOP, *arguments, own=told) as launchers,
    ):
        yield launchers


def test_a_rank_of_another_host(tmp_path: Path) -> None:
    """Its line and host are named; the run continues until it is stopped."""
    with looping(tmp_path, "--fault=sleep") as (head, other):
        wait_for(lambda: bool(reports_in(tmp_path)))
        wait_for(lambda: head.says(line_of("loop.py", "stuck: sleep")))
        report = reports_in(tmp_path)[0]
        assert (report["kind"], report["culprits"]) == ("absent", [1])
        assert head.says("rank 1 on beta|rank 1 .beta")
        assert head.process.poll() is None
        head.send(signal.SIGTERM)
        ended([head, other], 143)


def test_a_worker_of_another_host_is_stopped(tmp_path: Path) -> None:
    """SIGSTOP: the run ends on proof, without a failure."""
    with looping(tmp_path, "--fault=stop") as (head, other):
        head.process.wait()
        assert head.process.returncode not in (0, 70, 143)
        report = reports_in(tmp_path)[-1]
        assert (report["kind"], report["culprits"]) == ("stopped", [1])
        assert head.says("beta")
        other.process.wait()
        gone([head, other])


def test_a_launcher_is_stopped(tmp_path: Path) -> None:
    """SIGSTOP with an open connection: node 0 reports it, and the workers train on."""
    with looping(tmp_path, "--steps=1000000", own=[SHORT]) as (head, other):
        wait_for(lambda: "step 5" in head.said())
        other.send(signal.SIGSTOP)
        wait_for(lambda: head.says(r"node 1 \(\S+\) has given no sign of life"))
        other.send(signal.SIGCONT)
        wait_for(lambda: head.says(r"node 1 \(\S+\) answers again"))
        assert reports_in(tmp_path) == []
        head.send(signal.SIGTERM)
        ended([head, other], 143)
