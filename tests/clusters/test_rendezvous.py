"""Rendezvous of nodes: late, wrong and missing nodes, and strangers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.hosts import Host, needs_hosts, network
from support.jobs import FAST, PORT, Launcher, begin, ended, ending, exist, job, options
from support.stacks import ROOT
from support.waiting import wait_for

pytestmark = needs_hosts
STAYS = ROOT / "tests" / "programs" / "stays.py"
FAILS = ROOT / "tests" / "programs" / "fails.py"
USAGE, RETRY = 64, 75
STRANGERS = f"""
import contextlib, os, socket, sys

def visit(what):
    connection = socket.create_connection((sys.argv[1], {PORT}), timeout=600)
    with contextlib.suppress(ConnectionError):
        connection.sendall(what)
    return connection

asked = visit(b"GET / HTTP/1.1\\r\\nHost: alpha\\r\\n\\r\\n")
noise = [visit(os.urandom(size)) for size in (1, 100, 100_000)]
lines = [visit(b'["Hello", {{}}]\\n["Order", null]\\n[]\\n{{"a": 1}}\\n' + b"[" * 100_000 + b"\\n")]
crowd = [visit(b"") for _ in range(1000)]
print("ready", flush=True)
sys.stdin.read()
"""
"""Connects in all wrong ways and keeps the connections."""


def another(
    host: Host, folder: Path, hosts: Sequence[Host], rank: int | None, *own: object
) -> Launcher:
    """A launcher of the same script that isn't part of the job."""
    (folder / "others").mkdir(exist_ok=True)
    told = options(hosts, rank, *FAST, "--log-dir=others", *own)
    return begin(host, folder, *told, STAYS, folder, 0)


def crowd_of(host: Host, folder: Path) -> subprocess.Popen[str]:
    """Strangers that have all connected to node 0."""
    crowd = host.start(sys.executable, "-c", STRANGERS, "alpha", cwd=folder, stdin=subprocess.PIPE)
    assert crowd.stdout is not None
    assert crowd.stdout.readline() == "ready\n", crowd.communicate()
    return crowd


def refused(launcher: Launcher, code: int, text: str) -> None:
    """Waits for a launcher's end with a code and a message."""
    assert launcher.process.wait() == code, launcher.said()
    assert launcher.says(text), launcher.said()


def test_nodes_that_dont_belong(tmp_path: Path) -> None:
    """Other jobs, doubles, invalid ranks, strangers and late nodes don't disturb the job.

    All at one job of three, while it waits and while it runs; one of its nodes leaves and returns.
    """
    own = ("--rdzv-id=ours", "--nnodes=3", "--node-timeout=150", *FAST)
    script = (STAYS, tmp_path, 0)
    with network("alpha", "beta", "gamma", "delta") as hosts:
        _, beta, gamma, delta = hosts
        with job(tmp_path, hosts[:2], *script, own=own) as (head, first):
            wait_for(lambda: head.says("2 of 3 nodes have joined"))
            for rank, more, text in (
                (
                    2,
                    ("--nnodes=3", "--rdzv-id=theirs"),
                    "of another job: .*'theirs' isn't node 0's",
                ),
                (1, own, "says that it is node 1, as beta has said"),
                (3, (*own, "--nnodes=4"), "says that it is node 3, and node 0 expects"),
            ):
                refused(another(gamma, tmp_path, hosts, rank, *more), USAGE, text)
            crowd = crowd_of(delta, tmp_path)
            first.send(signal.SIGKILL)
            wait_for(lambda: head.says("beta has left again"))
            rest = [
                begin(host, tmp_path, *options(hosts, rank, *own), *script)
                for rank, host in ((1, beta), (2, gamma))
            ]
            with ending(rest):
                wait_for(exist(tmp_path, "ready-0-{}", range(3)))
                late = another(delta, tmp_path, hosts, 2, *own)
                text = "too late: a run of 3 nodes is under way at this port, and gamma is its"
                refused(late, USAGE, text)
                another_crowd = crowd_of(delta, tmp_path)
                (tmp_path / "finish").touch()
                ended([head, *rest], 0)
                for one in (crowd, another_crowd):
                    one.communicate("")


def test_a_script_that_differs(tmp_path: Path) -> None:
    """It is reported, and --strict refuses it on both nodes."""
    for folder, text in (("here", "print('a')"), ("there", "print('b')")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(text)
    with network("alpha", "beta") as hosts:
        for own, code in (((), 0), (("--strict",), USAGE)):
            launchers = [
                begin(host, tmp_path / place, *options(hosts, rank, *own), "train.py", rank)
                for rank, (host, place) in enumerate(zip(hosts, ("here", "there"), strict=True))
            ]
            with ending(launchers):
                ended(launchers, code)
                for text in ("the script on beta isn't", "the script's arguments on beta aren't"):
                    assert text in launchers[0].words()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """Node 0 names the port at once; node 1 gives up on the program that listens there."""
    serve = (
        f"import socket, time; s = socket.create_server(('', {PORT})); print('ready', flush=True)"
    )
    with network("alpha", "beta") as hosts:
        server = hosts[0].start(sys.executable, "-c", f"{serve}; time.sleep(600)", cwd=tmp_path)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        own = ("--rdzv-conf=join_timeout=2,last_call_timeout=1", "--node-timeout=1")
        with job(tmp_path, hosts, FAILS, own=own) as launchers:
            refused(launchers[0], USAGE, f"can't listen on port {PORT}: Address already in use")
            refused(launchers[1], RETRY, f"alpha:{PORT} accepts connections, but hasn't answered")
        server.kill()
        server.communicate()


def test_nodes_that_never_come(tmp_path: Path) -> None:
    """Without node 0, or with too few nodes, all time out and name the missing."""
    own = ("--rdzv-conf=join_timeout=10", "--nnodes=3")
    with network("alpha", "beta") as hosts:
        alone = begin(hosts[1], tmp_path, *options(hosts, 1, *own, "--master-port=1"), FAILS)
        with ending([alone]), job(tmp_path, hosts, FAILS, own=own) as launchers:
            ended(launchers, RETRY)
            for one in launchers:
                assert one.says("2 of 3 nodes have joined; rank 2 never joined; gave up after")
            refused(alone, RETRY, "node 0 wasn't found at alpha:1 within 10 s: nothing listens")


def test_a_node_that_cant_write(tmp_path: Path) -> None:
    """Node 1's run directory has no room: it ends with 73, node 0 with its reason."""
    each = ([], ["--log-dir=/proc/nowhere"])
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, STAYS, tmp_path, 0, own=FAST, each=each) as launchers,
    ):
        ended(launchers, RETRY, 73)
        reason = "node 1 (beta) is lost: the run directory can't be written: /proc/nowhere"
        assert reason in launchers[0].words()
