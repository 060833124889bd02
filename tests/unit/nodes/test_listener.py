"""Strangers at node 0's port while the job's nodes gather."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from msgspec import structs
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.core.placement import JoinTimes, Placement
from safe_launch.nodes import listener
from safe_launch.nodes.connection import Connection, encoded
from safe_launch.nodes.joining import Accepted, Join, Refusal
from safe_launch.nodes.listener import Listener
from safe_launch.nodes.messages import Ended
from safe_launch.nodes.rendezvous import Joined, gather, join, listener_of_head
from safe_launch.nodes.secret import Kind, Trust
from safe_launch.nodes.secure_channel import HELLO, MAGIC, Direction
from support.links import HEAD, LONG, call, framed, heard, linked, proven
from support.ports import free_port

OURS, THEIRS, OPEN = Trust(Kind.SECRET, b"ours" * 8), Trust(Kind.SECRET, b"theirs" * 8), Trust()
ELSEWHERE = "127.0.0.2"
"""Another address of this host, used by strangers."""


class Head:
    """Node 0 of two in a thread; on exit node 1 joins, and both must meet.

    Attributes:
        port: the listening port.
        said: messages to the user.
        thread: the waiting thread.
    """

    def __init__(self) -> None:
        self.port, self.said = free_port(), list[str]()
        self.thread = 0
        times = JoinTimes(join=LONG)
        name = "the job's name"
        self.placement = Placement(2, 2, 0, "127.0.0.1", self.port, job=name, times=times)

    def processor_time(self) -> float:
        """Processor time used, in seconds."""
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread))

    def gather(self, own: Join, listener: Listener) -> Joined:
        """Waits for node 1."""
        self.thread = threading.get_ident()
        return gather(self.placement, own, listener, self.said.append)

    def stranger(self, *, source: str = ELSEWHERE) -> socket.socket:
        """An unrelated connection."""
        return socket.create_connection(("127.0.0.1", self.port), source_address=(source, 0))


@contextmanager
def waiting(trust: Trust = OURS) -> Iterator[Head]:
    """A node 0 that waits for node 1, which joins at the end."""
    head = Head()
    listener = listener_of_head(head.placement, trust)
    assert listener is not None
    own = structs.replace(HEAD, job=head.placement.job)
    with ThreadPoolExecutor(2) as pool:
        joined = pool.submit(head.gather, own, listener)
        while not head.thread:
            time.sleep(0.01)
        try:
            yield head
        finally:
            one = structs.replace(own, rank=1, host="one")
            node = pool.submit(come, head, trust, one)
            links = joined.result(LONG).connections
            link = node.result(LONG)
            assert heard(link) == Accepted(2, 2)
            for end in (*links, link):
                end.close()
            listener.close()


def come(head: Head, trust: Trust, own: Join) -> Connection:
    """A node that retries its join until it is admitted, like a launcher."""
    limit = time.monotonic() + LONG
    while True:
        assert time.monotonic() < limit
        link = call(head.port, trust)
        link.send(own)
        with suppress(AssertionError):
            proven(link)
            return link
        link.close()


def closed(opened: socket.socket, seconds: float = LONG) -> bytes:
    """Waits until the peer closes a connection; returns the data received."""
    opened.settimeout(seconds)
    said = b""
    with suppress(ConnectionResetError):
        while chunk := opened.recv(1 << 16):
            said += chunk
    opened.close()
    return said


FORGED = framed(encoded(structs.replace(HEAD, rank=1, host="\x1b]0;evil\x07")))


def test_a_forged_join() -> None:
    """Without the secret it isn't read, and the reply reveals nothing of the job."""
    with waiting() as head:
        said = b""
        for hello in (
            MAGIC + HELLO.pack(0, bytes(32), b"", b"\n"),
            MAGIC + HELLO.pack(1, bytes(32), b"", b"\n") + bytes(32),
        ):
            opened = head.stranger()
            opened.sendall(hello + FORGED)
            said += closed(opened)
    assert [line for line in head.said if "refused a node: 127.0.0.2: it" in line] == head.said[:2]
    assert "evil" not in "".join(head.said)
    assert len(said) < 300
    assert b"name" not in said
    assert b"head" not in said


@pytest.mark.parametrize("trust", [THEIRS, OPEN], ids=["other", "none"])
def test_a_node_with_another_secret(trust: Trust) -> None:
    """It ends with advice and no details of the job; so does one at a forged node 0."""
    with waiting() as head:
        placement = Placement(2, 2, 1, "127.0.0.1", head.port)
        with pytest.raises(LaunchError, match="--secret-file FILE, or SAFE") as caught:
            join(placement, trust, structs.replace(HEAD, rank=1), head.said.append)
        assert caught.value.code == ExitCode.USAGE
        assert "the job's name" not in caught.value.problem + caught.value.hint


def test_a_join_of_another_job() -> None:
    """With the secret and another job's name, this job's name isn't revealed."""
    with waiting() as head:
        link = call(head.port, OURS)
        link.send(structs.replace(HEAD, rank=1, job="guess"))
        refusal = heard(link)
        assert isinstance(refusal, Refusal)
        assert "'guess'" in refusal.problem
        assert "the job's name" not in refusal.problem + refusal.hint
        link.close()


@pytest.mark.parametrize("trust", [OURS, OPEN], ids=["secret", "none"])
def test_what_costs_nothing(trust: Trust) -> None:
    """Two MiB of short lines, and twenty connections of 60 MiB each."""

    def pour(opened: socket.socket, content: bytes) -> None:
        with suppress(OSError):
            opened.sendall(content)

    openings = [b"", MAGIC + HELLO.pack(trust.kind, bytes(32), b"", b"\n")]
    with waiting(trust) as head:
        process, threads = psutil.Process(), []
        content = bytes(60 << 20)
        memory, began = process.memory_info().rss, head.processor_time()
        for opening in openings:
            opened = head.stranger()
            pour(opened, opening + b"1\n" * (1 << 20))
            opened.close()
            for _ in range(10):
                opened = head.stranger()
                pour(opened, opening)
                threads.append(threading.Thread(target=pour, args=(opened, content)))
                threads[-1].start()
        for thread in threads:
            thread.join(LONG)
        assert process.memory_info().rss - memory < 32 << 20
        assert head.processor_time() - began < 0.5


def test_slow_ones_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow bytes, silence or half a handshake don't keep a place."""
    monkeypatch.setattr(listener, "_TIME", 0.5)
    with waiting() as head:
        slow, silent, half = (head.stranger() for _ in range(3))
        half.sendall(MAGIC + HELLO.pack(1, bytes(32), b"", b"\n"))
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:  # until it is closed
                slow.sendall(MAGIC[:1])
                time.sleep(0.05)
        for opened in (silent, half):
            closed(opened)
        slow.close()
    assert head.said == []


def test_a_crowd_keeps_nobody_out() -> None:
    """Few of 2000 idle connections from one address are kept; other nodes get a turn."""
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert room > 5000, "the test needs as many open files"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(5000, room), room))
    with waiting() as head:
        early = call(head.port, OURS)
        crowd = [head.stranger() for _ in range(2000)]
        proven(early)  # it is the oldest and still connected
        limit = time.monotonic() + LONG
        while (kept := held(head.port)) > listener.STRANGERS + 3:
            assert time.monotonic() < limit, kept
            time.sleep(0.05)
        early.close()
        for opened in crowd:
            opened.close()


def held(port: int) -> int:
    """Connections held by this process at its own port."""
    rows = Path("/proc/self/net/tcp6").read_text() + Path("/proc/self/net/tcp").read_text()
    rows_of_port = [line.split() for line in rows.splitlines() if f":{port:04X} " in line]
    local = [row for row in rows_of_port if row[1].endswith(f":{port:04X}")]
    return sum(row[3] == "01" and row[9] != "0" for row in local)


def test_lines_that_strangers_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is logged once, up to a limit."""
    monkeypatch.setattr(listener, "_LINES", 2)
    with waiting(OPEN) as head:
        for number in (0, 0, 1, 2, 3):
            link = call(head.port, OPEN)
            proven(link)
            wrong = encoded(structs.replace(HEAD, rank=1)).replace(b'"nproc": 2', b'"nproc": -%d')
            link.socket.sendall(framed(wrong % number))
            assert isinstance(heard(link), Refusal)
            link.close()
    told = [line for line in head.said if "refused a node" in line]
    assert [line.partition("nproc: ")[2][:2] for line in told] == ["0 ", "-1"]


def told_by(message: bytes) -> str:
    """Node 0's reply to a message before a join, on a link without a secret."""
    with waiting(OPEN) as head:
        link = call(head.port, OPEN)
        proven(link)
        link.socket.sendall(message)
        refusal = heard(link)
        assert isinstance(refusal, Refusal)
        link.close()
        return refusal.problem


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        (framed(encoded(Ended(is_success=True))), "none of its messages: Invalid value 'Ended'"),
        (framed(b"1"), "none of its messages"),
        (framed(b"[" * 60_000), "none of its messages"),
        ((1 << 30).to_bytes(4), "a message of 1,073,741,824 bytes, and 65,536 are allowed"),
        ((Join.MOST + 1).to_bytes(4), "a message of 65,537 bytes"),
    ],
)
def test_before_a_join(frames: bytes, problem: str) -> None:
    """Only a small join is accepted."""
    assert problem in told_by(frames)


def test_a_link_that_was_meddled_with() -> None:
    """With a secret, a replayed frame ends the connection."""
    with linked(OURS) as (near, far):
        again = Direction(near._sent.key).sealed(encoded(HEAD))
        near.send(HEAD)
        assert heard(far) == HEAD
        near.socket.sendall(again)
        with pytest.raises(AssertionError, match="a message that was changed or repeated"):
            heard(far)
        assert far.is_foreign
