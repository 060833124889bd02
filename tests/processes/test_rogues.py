"""Real launchers against a forged peer: forged orders, joins and ends."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs
from safe_launch.checkpoints.checkpoint import Resume
from safe_launch.core.plain_json import plain
from safe_launch.nodes.connection import Connection, encoded
from safe_launch.nodes.joining import Accepted, Join, Refusal, RunStarted
from safe_launch.nodes.messages import Ended, Failing, Message, Order, RunEnded, Stop
from support.forged import ORDER, STARTED, Raw, raw
from support.links import (
    RECORD,
    call,
    end_of_link,
    framed,
    heard,
    proven,
)
from support.ports import free_port
from support.stacks import CURRENT
from support.waiting import LONG, wait_for

RETRY, USAGE = 75, 64
WORKS = "import os; open(f'ran-{os.environ[\"RANK\"]}', 'w').write(os.environ['MASTER_ADDR'])"


@dataclass
class Launched:
    """A running launcher with its output.

    Attributes:
        process: the launcher.
        folder: its working folder.
    """

    process: subprocess.Popen[str]
    folder: Path
    said: str = field(default="")

    def ended(self) -> int:
        """Waits for the end; returns the exit code."""
        self.said = self.process.communicate()[0]
        print(self.said)
        assert "safe-launch itself failed" not in self.said
        return self.process.returncode

    def words(self) -> str:
        """The output until the end, as one line."""
        return " ".join(self.said.replace("[safe-launch]", "").split())


@contextmanager
def launched(folder: Path, rank: int, port: int, script: str) -> Iterator[Launched]:
    """A launcher of a job of two nodes on this host, in its own folder."""
    own = folder / f"node-{rank}"
    own.mkdir()
    (own / "train.py").write_text(script)
    given = {"nnodes": 2, "nproc": 1, "node-timeout": 30, "log-dir": "runs"}
    command = [CURRENT.bin / "safe-launch", f"--node-rank={rank}", "--master-addr=127.0.0.1"]
    command += [f"--master-port={port}", *(f"--{name}={value}" for name, value in given.items())]
    process = subprocess.Popen(
        [*map(str, command), "train.py"],
        cwd=own,
        env=CURRENT.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Launched(process, own)
    finally:
        process.kill()
        process.wait()


@contextmanager
def following(folder: Path, script: str = WORKS) -> Iterator[tuple[Launched, Connection]]:
    """Node 1 of a job after its join; the test acts as node 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LONG)
        with launched(folder, 1, server.getsockname()[1], script) as follower:
            link = end_of_link(server.accept()[0], "node 1")
            try:
                assert isinstance(heard(link), Join)
                link.send(Accepted(2, 2))
                yield follower, link
            finally:
                link.close()


def end_of(link: Connection) -> Ended:
    """The end of the follower's workers; a failure before stops the others."""
    while not isinstance(message := heard(link), Ended):
        link.send(*([Stop()] if isinstance(message, Failing) else []))
    return message


def test_no_variable_of_an_order_reaches_a_worker(tmp_path: Path) -> None:
    """PYTHONPATH and an address in an order don't reach the worker."""
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "sitecustomize.py").write_text(f"open({str(evil / 'ran')!r}, 'w')")
    with following(tmp_path) as (follower, link):
        forged = raw(ORDER, environment={"PYTHONPATH": str(evil)}, address="evil")
        link.socket.sendall(framed(encoded(STARTED), forged))
        assert end_of(link).is_success
        link.send(RunEnded(0, "done"))
        assert follower.ended() == 0
        assert (follower.folder / "ran-1").read_text() == "127.0.0.1"
        assert not (evil / "ran").exists()


OF_NODE_0: list[tuple[Message, Raw, str]] = [
    (STARTED, {"run_id": "../../../escaped"}, "RunStarted.run_id: '../../../escaped'"),
    (STARTED, {"rank": 2}, "the rank is of one of the nodes"),
    (ORDER, {"run_id": "20260102-030405-6789ab"}, "an attempt of run 20260102-030405-6789ab"),
    (ORDER, {"preset": {"PYTHONPATH": "x"}}, "Invalid enum value 'PYTHONPATH'"),
    (
        ORDER,
        {"resume": {"training": 0, "name": "checkpoint-1"}},
        "no worker here has reported where",
    ),
    (Stop(), {"signal": 9}, "Stop.signal: 9"),
    (RunEnded(1), {"code": 256}, "RunEnded.code: 256"),
    (Ended(True), {}, "none of its messages: Invalid value 'Ended'"),
]
"""One for each way of detection; tests/unit/nodes/test_rogues.py has all."""


@pytest.mark.parametrize(("message", "changes", "problem"), OF_NODE_0)
def test_what_a_follower_refuses(
    message: Message, changes: Raw, problem: str, tmp_path: Path
) -> None:
    """It starts no worker and ends with the fault and its sender; node 0 is notified."""
    with following(tmp_path) as (follower, link):
        first = [] if isinstance(message, RunStarted) else [encoded(STARTED)]
        link.socket.sendall(framed(*first, raw(message, **changes)))
        told = heard(link)
        assert isinstance(told, Refusal)
        assert problem in told.problem
        assert follower.ended() == RETRY
        assert problem in follower.words()
        assert "127.0.0.1" in follower.words()
        assert not (follower.folder / "ran-1").exists()
        made = {one.relative_to(tmp_path).parts[0] for one in tmp_path.rglob("*")}
        assert made == {"node-1"}


def test_a_forged_message_ends_running_workers(tmp_path: Path) -> None:
    """A message that is invalid then stops the workers and the follower."""
    with following(tmp_path, "import time; open('runs-now', 'w'); time.sleep(600)") as (one, link):
        link.send(STARTED, ORDER)
        wait_for((one.folder / "runs-now").exists)
        link.socket.sendall(framed(raw(Stop(), signal=9999)))
        assert one.ended() == RETRY
        assert "it sent what no launcher sends: Stop.signal: 9999" in one.words()


@pytest.mark.parametrize(
    ("script", "attempts", "code"),
    [
        ("import os; os._exit(7)", 1, 7),
        ("raise ValueError", 1, 1),
        ("import os; os.kill(os.getpid(), 11)", 1, 139),
        ("import atexit, os; atexit.register(os.kill, os.getpid(), 11)", 1, 0),
        ("import os; os._exit(7 * (os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))", 2, 0),
        ("", 0, RETRY),
    ],
    ids=["exit", "raise", "signal", "after-the-end", "corrected", "never-started"],
)
def test_an_own_failure_is_no_success(
    script: str, attempts: int, code: int, tmp_path: Path
) -> None:
    """Node 0's final message doesn't override the end of this node's workers."""
    with following(tmp_path, script) as (follower, link):
        link.send(STARTED)
        for number in range(attempts):
            link.send(structs.replace(ORDER, attempt=number))
            last = end_of(link)
        assert attempts == 0 or last.is_success == (code == 0)
        link.send(RunEnded(0, "succeeded"))
        assert follower.ended() == code
        is_told = "says that the run has succeeded, but the workers" in follower.words()
        assert is_told == (code != 0)


def test_what_is_printed_drives_no_terminal(tmp_path: Path) -> None:
    """Escape sequences, carriage returns and bidi marks from node 0 are removed."""
    with following(tmp_path) as (follower, link):
        link.socket.sendall(
            framed(encoded(STARTED), raw(RunEnded(3), line="a\x1b[2Jb\rc\x9bd\u202ee\x07"))
        )
        assert follower.ended() == 3
        assert "node 0 ended the run: abcde exit code 3" in follower.words()


def come(port: int, process: subprocess.Popen[str]) -> Connection:
    """A connection to node 0 after the handshake, once it listens."""
    while True:
        assert process.poll() is None
        with suppress(ConnectionRefusedError):
            link = call(port)
            proven(link)
            return link
        time.sleep(0.05)


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Join:
    """A launcher's hello, read from one on this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LONG)
        folder = tmp_path_factory.mktemp("hello")
        with launched(folder, 1, server.getsockname()[1], WORKS):
            link = end_of_link(server.accept()[0], "node 1")
            said = heard(link)
            link.close()
    assert isinstance(said, Join)
    return said


def device(hello: Join, **changes: object) -> Raw:
    """Its hardware with another accelerator."""
    whole = json.loads(json.dumps(hello.hardware, default=plain))
    return {"hardware": {**whole, "accelerator": {**whole["accelerator"], **changes}}}


def test_what_node_0_refuses(tmp_path: Path, hello: Join) -> None:
    """Invalid hellos get the reason, and node 0 keeps waiting for the true one."""
    forged: list[tuple[Raw, str]] = [
        ({"nproc": -3}, "Join.nproc: -3 isn't from 1 to 4,096"),
        ({"nproc": 0}, "Join.nproc: 0"),
        ({"nproc": 10_000_000}, "Join.nproc: 10000000"),
        ({"rank": -1}, "Join.rank: -1"),
        ({"host": "9" * 5000}, "Join.host"),
        ({"host": "a\n[safe-launch] b"}, "Join.host"),
        ({"script": "train.py"}, "Join.script"),
        ({"nnodes": "many"}, "Join.nnodes"),
        (device(hello, environment={"PYTHONPATH": "evil"}), "variables don't cross a connection"),
        (device(hello, bandwidth=float("nan")), "Join.hardware.accelerator.bandwidth: nan"),
        (device(hello, compute=0), "Join.hardware.accelerator.compute: 0.0"),
        (device(hello, memory=-1), "Join.hardware.accelerator.memory: -1"),
        ({"hardware": None}, "Expected `object`, got `null` - at `$.hardware`"),
    ]
    port = free_port()
    with launched(tmp_path, 0, port, WORKS) as head:
        links = []
        for changes, problem in forged:
            links.append(come(port, head.process))
            links[-1].socket.sendall(framed(raw(hello, **changes)))
            told = heard(links[-1])
            assert isinstance(told, Refusal)
            assert problem in told.problem
        with launched(tmp_path, 1, port, WORKS) as other:
            assert other.ended() == 0
            assert head.ended() == 0
        for _, problem in forged:
            assert problem in head.words()
        for link in links:
            link.close()


@pytest.mark.parametrize(
    ("message", "changes", "problem"),
    [
        (Ended(True), {"signal": 9999}, "Ended.signal: 9999"),
        (Failing((RECORD,), 1.0), {"records": [{"rank": "x"}]}, "records"),
        (Stop(), {}, "none of its messages: Invalid value 'Stop'"),
    ],
)
def test_a_rogue_follower_counts_as_lost(
    message: Message, changes: Raw, problem: str, tmp_path: Path, hello: Join
) -> None:
    """Node 0 stops its workers and ends, naming the fault and the node."""
    port = free_port()
    script = "import time; open('runs-now', 'w'); time.sleep(600)"
    with launched(tmp_path, 0, port, script) as head:
        link = come(port, head.process)
        link.send(structs.replace(hello, host="beta"))
        while not isinstance(heard(link), Order):
            pass
        link.socket.sendall(framed(raw(message, **changes)))
        assert head.ended() == RETRY
        assert "node 1 (beta) is lost: it sent what no launcher sends" in head.words()
        assert problem in head.words()
        link.close()


SAVES = """
import os, sys
from pathlib import Path
from safe_launch.checkpoints.checkpoint import Saves
from safe_launch.evidence.worker_messages import SaveLocation
from safe_launch.evidence.worker_channel import VARIABLE, Sender
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sender = Sender(os.environ[VARIABLE], int(os.environ["RANK"]))
    sender.send(SaveLocation(Saves(str(Path("out").absolute()))))
    sys.exit(3)
Path("told").write_text(os.environ["SAFE_LAUNCH_RESUME"])
"""
"""Reports its save folder, like a Trainer's worker, and fails; then records its resume point."""


def test_a_node_goes_on_from_its_own_folder(tmp_path: Path) -> None:
    """Node 0 names the checkpoint; the node's own workers gave its folder."""
    with following(tmp_path, SAVES) as (follower, link):
        link.send(STARTED, ORDER)
        assert not end_of(link).is_success
        link.send(structs.replace(ORDER, attempt=1, resume=Resume(0, "checkpoint-3")))
        assert end_of(link).is_success
        link.send(RunEnded(0, "done"))
        assert follower.ended() == 0
        place = follower.folder / "out" / "checkpoint-3"
        assert (follower.folder / "told").read_text() == f"0:{place}"
