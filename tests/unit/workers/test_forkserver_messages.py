"""Messages between the launcher and its fork server arrive unchanged."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from safe_launch.workers.forkserver.messages import (
    WARM,
    AskEnd,
    Copied,
    EnvironmentDiffers,
    ForkWorker,
    HasEnded,
    HostStore,
    Keep,
    MakeCopy,
    Message,
    Readiness,
    Start,
    TakeOver,
    Unshared,
    WorkersForked,
    receive,
    send,
)

Ends = tuple[socket.socket, socket.socket]
WITHOUT_DESCRIPTORS = (
    Readiness(None),
    Readiness("an import has started 1 thread"),
    Unshared("swift", "reads RANK"),
    EnvironmentDiffers(["A", "B"]),
    WorkersForked([1, 2], None),
    WorkersForked([1], 7),
    Copied(5),
    Keep("a-key", 1.5, 7, "/run/user/7"),
    AskEnd(7),
    HasEnded(-11),
)


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Both ends of a connection with message boundaries."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("message", WITHOUT_DESCRIPTORS, ids=repr)
def test_an_answer_arrives_as_it_was_sent(ends: Ends, message: Message) -> None:
    """The type is kept, too."""
    send(ends[0], message)
    assert receive(ends[1]) == message


def test_descriptors_arrive_as_the_receivers_own(ends: Ends, tmp_path: Path) -> None:
    """In the fields in which they were sent; the sender's stay open."""
    paths = tmp_path / "first", tmp_path / "second"
    first, second = (os.open(path, os.O_CREAT | os.O_RDWR) for path in paths)
    send(ends[0], HostStore(29500, listener=first, line=second))
    send(ends[0], ForkWorker({"RANK": "0"}, 3, stdout=second, stderr=first))
    send(ends[0], MakeCopy(None, connection=first, report=second))
    send(ends[0], TakeOver(stdin=second, launch=first))
    store, worker, copy, taken = (receive(ends[1]) for _ in range(4))
    assert isinstance(store, HostStore)
    assert isinstance(worker, ForkWorker)
    assert isinstance(copy, MakeCopy)
    assert isinstance(taken, TakeOver)
    assert (store.port, worker.environment, worker.remaining) == (29500, {"RANK": "0"}, 3)
    assert copy.excluded_package is None
    received = {
        *((store.listener, "first"), (store.line, "second")),
        *((worker.stdout, "second"), (worker.stderr, "first")),
        *((copy.connection, "first"), (copy.report, "second")),
        *((taken.stdin, "second"), (taken.launch, "first")),
    }
    assert {descriptor for descriptor, _ in received}.isdisjoint((first, second))
    for descriptor, name in received:
        assert Path(f"/proc/self/fd/{descriptor}").readlink().name == name
        os.close(descriptor)
    os.close(first)
    os.close(second)


def test_every_message_is_tested_here() -> None:
    """New message types must be added."""
    tested = {HostStore, ForkWorker, MakeCopy, TakeOver, *map(type, WITHOUT_DESCRIPTORS)}
    assert tested == set(get_args(Message))


def test_the_end_of_a_connection_is_no_message(ends: Ends) -> None:
    """An error isn't a message either."""
    ends[0].close()
    assert receive(ends[1]) is None


def test_a_worker_doesnt_inherit_what_the_server_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server removes the variable from the environment after reading it."""
    start = Start(3, 4, does_import=False, per_rank_variables=["RANK"], may_be_kept=True)
    monkeypatch.setenv(WARM, start.to_text())
    assert Start.from_environment() == start
    assert WARM not in os.environ


def test_a_worker_begins_without_modules_that_its_script_may_want_in_another_version() -> None:
    """The module that decodes messages stays imported in the worker."""
    code = (
        "import json, sys\n"
        "import safe_launch.worker\n"
        "from safe_launch.workers.forkserver import restart_in_place, server\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(json.loads(done.stdout))
    assert "safe_launch" in imported
    foreign = {"msgspec", "yaml", "omegaconf", "psutil", "packaging", "re2", "numpy", "torch"}
    assert imported & foreign == set()
