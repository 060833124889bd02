"""The metrics port keeps answering despite slow clients."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from safe_launch.commands import metrics


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The metrics port of an empty run, until the launcher's end."""
    monkeypatch.setattr(metrics, "_text", lambda *_, **__: b"# EOF\n")
    monkeypatch.setattr(metrics.run_search, "status_of", lambda run: run)
    listener = socket.create_server(("127.0.0.1", 0))
    number = listener.getsockname()[1]
    reader, writer = os.pipe()
    with open(reader) as launcher:
        monkeypatch.setattr(metrics.sys, "stdin", launcher)
        given = tmp_path, listener.detach()
        thread = threading.Thread(target=metrics._answer_until_the_end, args=given)
        thread.start()
        yield number
        os.close(writer)
        thread.join()


def read(port: int) -> bytes:
    """A client's response."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as reader:
        reader.request("GET", "/metrics")
        return reader.getresponse().read()


def test_slow_connections_keep_nobody_out(port: int) -> None:
    """A new connection replaces the oldest."""
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(metrics.AT_ONCE)]
    for one in slow:
        one.sendall(b"GET /met")
    assert [read(port) for _ in range(3)] == [b"# EOF\n"] * 3
    slow[0].settimeout(10)
    assert slow[0].recv(1) == b""
    for one in slow:
        one.close()


def test_a_connection_has_a_time_for_all(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A steady trickle doesn't extend the total timeout."""
    monkeypatch.setattr(metrics, "WHOLE", 1.0)
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.settimeout(0.1)
        for _ in range(100):
            try:
                slow.sendall(b"X")
                if slow.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    raise AssertionError("it is still connected")
