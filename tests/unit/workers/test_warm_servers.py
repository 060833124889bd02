"""Servers that wait for a launch: how they are found, and who may connect."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from safe_launch.workers.forkserver import warm_servers
from safe_launch.workers.forkserver.warm_servers import WarmServer, boot, clock
from support.other_user import OTHER, needs_root

WAITS = """
import os, socket, sys, time
from safe_launch.workers.forkserver.warm_servers import WarmServer, clock, folder
server = WarmServer(folder(), sys.argv[1], os.getpid(), int(clock()) + int(sys.argv[2]))
listener = server.listen()
print(flush=True)
time.sleep(600)
"""


def waiting(key: str, seconds: int) -> subprocess.Popen[str]:
    """A process that waits like a server."""
    command = [sys.executable, "-c", WAITS, key, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the sockets."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "safe-launch"


@pytest.fixture
def key() -> str:
    """This test's unique key."""
    return secrets.token_hex(8)


@pytest.fixture
def servers(key: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Two waiting servers, the second one for longer."""
    found = [waiting(key, seconds) for seconds in (60, 90)]
    yield found
    for process in found:
        process.kill()
        process.communicate()


def test_they_are_found_by_their_key(key: str, servers: list[subprocess.Popen[str]]) -> None:
    """The longest-waiting one first; they can be ended."""
    found = warm_servers.find(key)
    assert [server.pid for server in found] == [servers[1].pid, servers[0].pid]
    assert 50 < found[1].left <= 60 < found[0].left <= 90
    assert set(found) <= set(warm_servers.find())
    assert warm_servers.find(key[1:]) == []
    with closing(found[0].connect() or socket.socket()) as connection:
        assert warm_servers.peer(connection) == (servers[1].pid, os.geteuid())
    assert found[0].end()
    assert servers[1].wait() == -9
    assert not found[0].end()
    assert [server.pid for server in warm_servers.find(key)] == [servers[0].pid]


def test_no_other_user_or_container_reaches_them(
    place: Path, servers: list[subprocess.Popen[str]], key: str
) -> None:
    """Socket files are in a private folder; abstract names would be visible."""
    assert servers
    lines = [line for line in Path("/proc/net/unix").read_text().splitlines() if key in line]
    assert [" @" in line for line in lines] == [False, False]
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o755)
    assert warm_servers.find(key) == []


@needs_root
def test_another_users_folder_is_not_used(place: Path, tmp_path: Path) -> None:
    """Neither to find nor to leave servers, by root either: the next folder is."""
    place.mkdir(mode=0o700)
    (place / f"key-1-2-{boot()}").touch()
    assert len(warm_servers.find("key")) == 1
    os.chown(place, OTHER, OTHER)
    assert warm_servers.find("key") == []
    assert tmp_path not in (warm_servers.folder() or place).parents


@needs_root
def test_a_process_of_a_container_is_elsewhere() -> None:
    """Its files or processes differ from this one's."""
    for apart in (["--mount"], ["--pid", "--fork"], ["--user"]):
        command = ["unshare", *apart, "sh", "-c", "echo; exec sleep 600"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                process.wait()
                pytest.skip("this host makes no namespaces")
            pids = [process.pid, *(child.pid for child in psutil.Process(process.pid).children())]
            assert not warm_servers.is_here(pids[-1]), apart
            for pid in reversed(pids):
                os.kill(pid, signal.SIGKILL)
    with subprocess.Popen(["sleep", "600"]) as process:
        assert warm_servers.is_here(process.pid)
        process.kill()
    assert not warm_servers.is_here(process.pid)


def test_a_killed_ones_socket_goes(
    place: Path, key: str, servers: list[subprocess.Popen[str]]
) -> None:
    """The next launch that sees it removes it."""
    servers[1].kill()
    servers[1].wait()
    gone, there = warm_servers.find(key)
    assert gone.connect() is None
    assert [server.pid for server in warm_servers.find(key)] == [there.pid]
    assert [path.name for path in place.iterdir()] == [there.name]


def test_a_name_is_no_proof(key: str) -> None:
    """A listener under another process's name isn't used, and that process lives on."""
    folder = warm_servers.folder()
    assert folder is not None
    with subprocess.Popen(["sleep", "600"]) as other:
        server = WarmServer(folder, key, other.pid, int(clock()) + 60)
        with closing(server.listen()):
            assert warm_servers.find(key) == [server]
            assert server.connect() is None
            assert not server.end()
            assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    "name", ["", "-1-2-{boot}", "key-1-2", "key-a-2-{boot}", "key-1-2-{boot}x"]
)
def test_other_names_are_nobodys(name: str, tmp_path: Path) -> None:
    """For example another host's in a shared folder."""
    assert WarmServer.at(tmp_path, name.format(boot=boot())) is None
    assert WarmServer.at(tmp_path, f"key-1-2-{boot()}") == WarmServer(tmp_path, "key", 1, 2)
