"""The simulated hosts of other tests: their names, their network, and their cleanup."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import hosts
from support.hosts import Host, needs_hosts, network
from support.stacks import TESTS
from support.waiting import LONG, wait_for

pytestmark = needs_hosts
ECHO = """
import socket, sys
server = socket.create_server(("", 7000))
print("ready", flush=True)
connection, _ = server.accept()
while data := connection.recv(1 << 16):
    connection.sendall(data)
"""
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 7000), timeout=600)
sent = b"x" * int(sys.argv[2])
connection.sendall(sent)
connection.shutdown(socket.SHUT_WR)
got = b""
while data := connection.recv(1 << 16):
    got += data
print(socket.gethostname(), got == sent)
"""


def test_a_command_is_on_its_host_and_is_the_process(tmp_path: Path) -> None:
    """Host name, folder, pid and signal are exact."""
    with network("alpha", "beta") as (alpha, beta):
        assert alpha.run("hostname").stdout == "alpha\n"
        assert beta.run("pwd", cwd=tmp_path).stdout == f"{tmp_path}\n"
        process = beta.start("sleep", "1000", cwd=tmp_path)
        wait_for(lambda: psutil.Process(process.pid).name() == "sleep")
        assert [one.pid for one in beta.processes()] == [process.pid]
        assert alpha.processes() == []
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == -signal.SIGTERM


def test_hosts_reach_each_other_by_name(tmp_path: Path) -> None:
    """Data arrives despite delay and loss; two networks are separate."""
    with network("alpha", "beta") as (alpha, beta), network("alpha", "beta") as (other, _):
        for delay, loss in ((0.0, 0.0), (0.02, 0.05)):
            beta.weather(delay, loss)
            server = alpha.start(sys.executable, "-c", ECHO, cwd=tmp_path)
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            assert other.run(sys.executable, "-c", ASK, "alpha", 1, cwd=tmp_path).returncode == 1
            asked = beta.run(sys.executable, "-c", ASK, "alpha", 3_000_000, cwd=tmp_path)
            assert asked.stdout == "beta True\n", asked.stderr
            server.communicate()


def ping(host: Host, address: str, seconds: float = LONG) -> bool:
    """Whether a host answers within this many seconds."""
    ask = f"import socket; socket.create_connection(('{address}', 7000), timeout={seconds})"
    return host.run(sys.executable, "-c", ask).returncode == 0


def test_a_host_can_be_cut_off(tmp_path: Path) -> None:
    """By its interface, or silently by the switch; then it returns."""
    serve = "import socket, time; s = socket.create_server(('', 7000)); time.sleep(1000)"
    with network("alpha", "beta") as (alpha, beta):
        server = alpha.start(sys.executable, "-c", serve, cwd=tmp_path)
        while not ping(beta, alpha.address):
            assert server.poll() is None
        beta.weather(loss=1)
        assert not ping(beta, alpha.address, seconds=2)
        beta.weather()
        assert ping(beta, alpha.address)
        beta.unplug()
        assert not ping(beta, alpha.address, seconds=2)
        beta.plug()
        assert ping(beta, alpha.address)
        server.kill()
        server.communicate()


def test_a_name_can_come_late() -> None:
    """A host's name may be added while others run."""
    with network("alpha", "beta", resolve=False) as (alpha, beta):
        assert beta.run("getent", "hosts", "alpha").returncode != 0
        beta.learn(alpha, "alpha.jobs.svc")
        assert beta.run("getent", "hosts", "alpha.jobs.svc").stdout.split()[0] == alpha.address


def test_a_process_that_is_left_is_told_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that leaves a process fails without disturbing the next."""
    world = network("alpha")
    (alpha,) = world.__enter__()
    process = alpha.start("setsid", "sleep", "1000", cwd=tmp_path)
    wait_for(lambda: psutil.Process(process.pid).name() == "sleep")
    monkeypatch.setattr(hosts, "LEAVING", 0.5)
    with pytest.raises(AssertionError, match="sleep 1000"):
        world.__exit__(None, None, None)
    assert process.wait() == -signal.SIGKILL


def test_nothing_stays_where_the_test_is_killed(tmp_path: Path) -> None:
    """The namespaces end with the process that made them."""
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from support.hosts import network\n"
        "with network('alpha') as (a,): print(a.holder, a.switch.pid, flush=True); time.sleep(1000)"
    )
    folder = TESTS
    with subprocess.Popen(
        [sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        left = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        process.kill()
    assert psutil.wait_procs(left, timeout=LONG)[1] == []
