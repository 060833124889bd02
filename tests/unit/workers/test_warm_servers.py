"""Servers that wait for a launch: whom they are found by, and who may connect."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from safe_launch.workers.forkserver import warm_servers
from safe_launch.workers.forkserver.warm_servers import PREFIX, WarmServer, clock

WAITS = """
import os, socket, sys, time
from safe_launch.workers.forkserver.warm_servers import WarmServer, clock
server = WarmServer(os.geteuid(), sys.argv[1], os.getpid(), int(clock()) + int(sys.argv[2]))
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(server.address)
listener.listen()
print(flush=True)
time.sleep(600)
"""


def waiting(key: str, seconds: int) -> subprocess.Popen[str]:
    """A process that waits as a server does."""
    command = [sys.executable, "-c", WAITS, key, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def key() -> str:
    """A key of this test's own."""
    return secrets.token_hex(8)


@pytest.fixture
def servers(key: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Two that wait, the second one longer."""
    found = [waiting(key, seconds) for seconds in (60, 90)]
    yield found
    for process in found:
        process.kill()
        process.communicate()


def test_they_are_found_by_their_key(key: str, servers: list[subprocess.Popen[str]]) -> None:
    """The one that waits longest first; and they can be ended."""
    found = warm_servers.found(key)
    assert [server.pid for server in found] == [servers[1].pid, servers[0].pid]
    assert 50 < found[1].left <= 60 < found[0].left <= 90
    assert set(found) <= set(warm_servers.found())
    assert warm_servers.found(key[1:]) == []
    with closing(found[0].connect() or socket.socket()) as connection:
        assert warm_servers.peer(connection) == (servers[1].pid, os.geteuid())
    assert found[0].end()
    assert servers[1].wait() == -9
    assert not found[0].end()
    assert [server.pid for server in warm_servers.found(key)] == [servers[0].pid]


def test_a_name_is_no_proof(key: str) -> None:
    """Who listens under another process's name isn't connected to, and that process lives on."""
    with (
        subprocess.Popen(["sleep", "600"]) as other,
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as listener,
    ):
        server = WarmServer(os.geteuid(), key, other.pid, int(clock()) + 60)
        listener.bind(server.address)
        listener.listen()
        assert warm_servers.found(key) == [server]
        assert server.connect() is None
        assert not server.end()
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    "name",
    [
        "",
        PREFIX,
        f"{PREFIX}/0/key/1",
        f"{PREFIX}/a/key/1/2",
        "other/0/key/1/2",
        f"{PREFIX}/0/a/b/1/2",
    ],
)
def test_other_names_are_nobodys(name: str) -> None:
    """Anybody can listen under anything."""
    assert WarmServer.named(name) is None


def test_another_users_servers_arent_found(key: str) -> None:
    """By their name; a false one is refused when it is connected to."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as listener:
        listener.bind(WarmServer(os.geteuid() + 1, key, os.getpid(), int(clock()) + 60).address)
        listener.listen()
        assert warm_servers.found(key) == []
