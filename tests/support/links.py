"""Two launchers' ends of a link, and messages."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from safe_launch.checkpoints.checkpoint import Resume
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import Check, Finding
from safe_launch.core.choices import Precision
from safe_launch.core.hardware import Accelerator, Hardware
from safe_launch.core.settings import Setting
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from safe_launch.nodes.connection import Connection
from safe_launch.nodes.joining import Join, Refusal, RunStarted, Unable
from safe_launch.nodes.messages import (
    Ended,
    Failing,
    Message,
    NodeCompared,
    NodeFound,
    NodeObserved,
    Order,
    RunEnded,
    Stop,
)
from safe_launch.nodes.secret import Trust
from safe_launch.nodes.secure_channel import Direction, Handshake, hosting, joining

from support.waiting import LONG

CPU = Accelerator("cpu", "cpu", 0, 0, frozenset(Precision), 1e11, 2e10, 1e10, 1e9, 1e10)


GPU = Accelerator(
    "a100-80gb", "cuda", 80 << 30, 1 << 30, frozenset(Precision), 3e14, 2e12, 3e11, 1e10, 3e10
)


HARDWARE = Hardware(CPU, 0, 8, 64 << 30)


VERSIONS = {"safe-launch": "0.1.0", "torch": "2.13.0+cpu", "deepspeed": "0.19.8"}


HEAD = Join("job", 0, "head", 2, HARDWARE, VERSIONS, "5c" * 32, "a2" * 32)


RUN = "20260102-030405-6789ab"


def heard(link: Connection) -> Message:
    """The next message on a connection."""
    limit = time.monotonic() + LONG
    while not link.waiting:
        assert link.fault is None, link.fault
        assert time.monotonic() < limit
        link.waiting += link.receive()
        time.sleep(0.001)
    return link.waiting.pop(0)


EVERY = Message


def end_of_link(opened: socket.socket, peer: str, handshake: Handshake | None = None) -> Connection:
    """An end of a TCP connection, on which the other may say all; node 0's where none is told."""
    return Connection(opened, peer, EVERY).begin(handshake or hosting(Trust()))


def call(port: int, trust: Trust | None = None) -> Connection:
    """Another node's end of a connection to node 0 on this host."""
    opened = socket.create_connection(("127.0.0.1", port))
    return end_of_link(opened, "node 0", joining(trust or Trust()))


def framed(*payloads: bytes) -> bytes:
    """Payloads as they travel on a link without a secret."""
    return b"".join(Direction(b"").sealed(payload) for payload in payloads)


def proven(*links: Connection) -> None:
    """Waits until the handshakes of several ends are over."""
    limit = time.monotonic() + LONG
    while not all(link.is_proven for link in links):
        assert time.monotonic() < limit
        for link in links:
            if not link.is_proven:  # one that is may have been refused by now
                assert link.fault is None, link.fault
                link.waiting += link.receive()


@contextmanager
def linked(trust: Trust | None = None) -> Iterator[tuple[Connection, Connection]]:
    """Two ends of a TCP connection, on which each may say all."""
    trust = trust or Trust()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = call(server.getsockname()[1], trust)
        near.peer = "far"
        far = end_of_link(server.accept()[0], "near", hosting(trust))
        proven(near, far)
        try:
            yield near, far
        finally:
            near.close()
            far.close()


RECORD = FailureRecord(
    rank=3,
    at=100.0,
    exception="builtins.AssertionError",
    message="The parameter vision.1.mlp.2.bias has already been reduced. \u00e9\u4e2d\udc80",
    chain=(Raised("builtins.KeyError", "x", Frame("a.py", 1, "f", "x"), was_handled=True),),
    frames=tuple(Frame("train.py", line, "main", "loss.backward()") for line in range(30)),
    traceback="Traceback (most recent call last):\n" * 10,
    step=7,
    parameters=("vision.1.mlp.2.bias",),
    observed={"zero_stage": 2, "frozen_parameters": False},
    versions={"torch": "2.13.0"},
    user_files=("train.py",),
    exit_code=1,
    memory={"allocated": 1 << 36},
    log_tail=tuple(f"line {place}" for place in range(50)),
)


ORDER = Order(
    attempt=1,
    run_id=RUN,
    rank=2,
    workers=(2, 2, 4),
    port=29_500,
    preset={Setting.ZERO_STAGE: 2, Setting.GRADIENT_CHECKPOINTING: "non_reentrant"},
    overrides={Setting.GRADIENT_CHECKPOINTING: "non_reentrant"},
    replaced={Setting.GRADIENT_CHECKPOINTING: "reentrant"},
    resume=Resume(0, "checkpoint-7"),
)


MESSAGES: list[Message] = [
    HEAD,
    RunStarted(RUN, 1, 2),
    Refusal(64, "problem", "hint"),
    Unable("job", 1, "other", 64, "problem", "hint"),
    ORDER,
    Stop(),
    Stop(15),
    NodeObserved({"zero_stage": 2}, {"config": {}, "weights": [["a", [2, 3], True, 16, 1]]}),
    NodeFound(3, Finding(Check.TRAINED, "nothing is trained", "train it", 3, certain=True)),
    NodeCompared(3, Compared(Shared.WEIGHTS, "5c a2", "train.py:7", 1, ("a", "b"))),
    Failing((RECORD,), 1.5),
    Ended(is_success=False, records=(RECORD, RECORD), signal=15, now=2.5),
    RunEnded(75, "lost"),
]
