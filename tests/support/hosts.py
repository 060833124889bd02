"""Hosts on one machine: network namespaces with names, addresses and a network of their own.

    with network("alpha", "beta") as (alpha, beta):
        process = beta.start("safe-launch", ..., cwd=folder)

A process that is started on a host is the command itself: its pid, its signals and its exit code
are exact. Every network is apart from the machine's and from every other's, so that tests can run
side by side with the same addresses. Nothing outlives the test, not even where pytest is killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from support.waiting import LONG

SWITCH = Path(__file__).parent / "switch.py"
SUBNET = "10.78.0"
MTU = 65_000
"""Few large packets: a switch in user space pays for each, not for its size."""
LEAVING = 60.0
"""Seconds for what a killed launcher has left: its guardian ends that."""
LACKING = [
    *([] if os.geteuid() == 0 else ["the rights of root"]),
    *([] if shutil.which("ip") else ["iproute2"]),
    *([] if shutil.which("nsenter") else ["util-linux"]),
    *([] if Path("/dev/net/tun").exists() else ["/dev/net/tun"]),
]
needs_hosts = pytest.mark.skipif(bool(LACKING), reason=f"hosts need {', '.join(LACKING)}")


@dataclass(frozen=True)
class Host:
    """One of the hosts.

    Attributes:
        name: its host name.
        address: its IPv4 address.
        number: its port of the switch.
        holder: a process that does nothing but keep the host's namespaces.
        names: its /etc/hosts.
        switch: the process that moves the frames.
    """

    name: str
    address: str
    number: int
    holder: int
    names: Path
    switch: subprocess.Popen[str]

    def command(self, *argv: object, cwd: Path) -> list[str]:
        """What runs a command here: `nsenter` becomes the command, it doesn't stay its parent."""
        enter = ("nsenter", "--target", self.holder, "--net", "--uts", "--mount", f"--wdns={cwd}")
        return [str(part) for part in (*enter, "--", *argv)]

    def start(
        self, *argv: object, cwd: Path, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a command here; its output is piped unless `options` say otherwise."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = self.command(*argv, cwd=cwd)
        return subprocess.Popen(command, env=env, text=True, **{**pipes, **options})

    def run(
        self, *argv: object, cwd: Path = Path("/"), seconds: float = LONG
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command here to its end."""
        return subprocess.run(
            self.command(*argv, cwd=cwd),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def learn(self, other: Host, *more: str) -> None:
        """Knows a host's name from now on, and further names of it, the longest first."""
        with self.names.open("a") as file:
            file.write(" ".join((other.address, *more, other.name)) + "\n")

    def unplug(self) -> None:
        """Sets its interface down: whatever is sent here fails at once, nobody hears of it."""
        assert self.run("ip", "link", "set", "eth0", "down").returncode == 0

    def plug(self) -> None:
        """Sets its interface up again."""
        assert self.run("ip", "link", "set", "eth0", "up").returncode == 0

    def weather(self, delay: float = 0.0, loss: float = 0.0) -> None:
        """Delays by seconds, and loses a part of, all that it sends and receives.

        Without arguments the weather is fine; with `loss=1` the host is cut off without noticing.
        """
        assert self.switch.stdin is not None
        assert self.switch.stdout is not None
        print(self.number, delay, loss, file=self.switch.stdin, flush=True)
        assert self.switch.stdout.readline() == "done\n"

    def processes(self) -> list[psutil.Process]:
        """Everything that runs here."""
        here = Path(f"/proc/{self.holder}/ns/net").readlink()
        return [one for one in psutil.process_iter() if one.pid != self.holder and _on(one, here)]


def _on(process: psutil.Process, namespace: Path) -> bool:
    try:
        return Path(f"/proc/{process.pid}/ns/net").readlink() == namespace
    except OSError:  # it has ended
        return False


@contextmanager
def network(*names: str, resolve: bool = True) -> Iterator[tuple[Host, ...]]:
    """Hosts of these names that reach each other, until the block ends.

    Args:
        names: host names.
        resolve: whether they know their own and each other's names from the beginning.

    Raises:
        AssertionError: a process is left on a host at the end; it is killed all the same.
    """
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    (servers := folder / "name-servers").write_text("")  # nobody to ask, so nobody to wait for
    started: list[subprocess.Popen[str]] = []
    hosts: list[Host] = []
    left: list[str] = []
    try:
        switch = _keep(started, "unshare", "--net", sys.executable, SWITCH, len(names))
        for number, name in enumerate(names):
            (file := folder / f"names-{number}").write_text("127.0.0.1 localhost\n")
            setup = (
                f"hostname {name} && mount --bind {file} /etc/hosts"
                f" && mount --bind {servers} /etc/resolv.conf && ip link set lo up"
            )
            shell = ("sh", "-c", f"{setup} && echo ready && exec sleep infinity")
            holder = _keep(started, "unshare", "--net", "--uts", "--mount", *shell).pid
            hosts.append(Host(name, f"{SUBNET}.{number + 1}", number, holder, file, switch))
            _plug_in(hosts[-1])
        for host in hosts if resolve else ():
            for other in hosts:
                host.learn(other)
        yield tuple(hosts)
    finally:
        end = time.monotonic() + LEAVING
        while any(host.processes() for host in hosts) and time.monotonic() < end:
            time.sleep(0.02)
        for process in [one for host in hosts for one in host.processes()]:
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                left.append(f"{process.pid} {' '.join(process.cmdline())}")
                process.kill()
        for running in reversed(started):
            running.kill()
            running.communicate()
        shutil.rmtree(folder)
    assert left == [], f"left on the hosts: {left}"


def _keep(started: list[subprocess.Popen[str]], *argv: object) -> subprocess.Popen[str]:
    """Starts a process that is ready when it says so, and that doesn't outlive this one."""
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *map(str, argv)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for whoever takes the network apart
    )
    started.append(process)
    output: IO[str] | None = process.stdout
    assert output is not None
    assert output.readline() == "ready\n", f"{argv} didn't start"
    return process


def _plug_in(host: Host) -> None:
    """Joins the host with its port of the switch."""
    moved = f"ip link set port-{host.number} netns {host.holder} name eth0"
    enter = ["nsenter", "--target", str(host.switch.pid), "--net"]
    subprocess.run([*enter, *moved.split()], check=True)
    mac = f"02:00:00:00:{host.number >> 8:02x}:{host.number & 255:02x}"
    for command in (
        f"link set eth0 address {mac} mtu {MTU}",
        f"addr add {host.address}/24 dev eth0",
        "link set eth0 up",
    ):
        done = host.run("ip", *command.split())
        assert done.returncode == 0, done.stderr
