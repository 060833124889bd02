"""Real ssh servers on the tests' hosts, with keys and a configuration of their own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.hosts import LACKING, Host
from support.waiting import wait_for

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
needs_ssh = pytest.mark.skipif(
    bool(LACKING) or SSHD is None, reason="needs root, hosts and openssh-server"
)
PORT = 2222


@dataclass(frozen=True)
class Keys:
    """The keys of a test and ssh's configuration with them.

    Attributes:
        folder: where they lie.
    """

    folder: Path

    @property
    def config(self) -> Path:
        """A configuration that nothing else is read beside (`ssh -F`)."""
        return self.folder / "config"

    @property
    def options(self) -> tuple[str, ...]:
        """What safe-launch needs to use them."""
        return ("--ssh_port", str(PORT), "--launcher_args", f"-F {shlex.quote(str(self.config))}")

    def configure(self, identity: str = "user", known: str = "known_hosts") -> None:
        """Says which key to offer and which hosts' keys to believe."""
        lines = {
            "User": "root",
            "IdentityFile": f'"{self.folder / identity}"',
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": f'"{self.folder / known}"',
            "GlobalKnownHostsFile": "none",
        }
        self.config.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))


def keys(folder: Path) -> Keys:
    """New keys: of the servers, of the user, and of a stranger."""
    folder.mkdir()
    for name in ("server", "user", "stranger"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    kind, key, *_ = (folder / "server.pub").read_text().split()
    (folder / "known_hosts").write_text(f"* {kind} {key}\n")
    (folder / "strangers").write_text("")
    (folder / "sshd_config").write_text(
        f'HostKey "{folder / "server"}"\nAuthorizedKeysFile "{folder / "authorized"}"\n'
        f"Port {PORT}\nStrictModes no\nUsePAM no\nPidFile none\nLogLevel ERROR\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nMaxStartups 100\n"
    )
    result = Keys(folder)
    result.configure()
    return result


@contextmanager
def serving(keys: Keys, *hosts: Host) -> Iterator[None]:
    """An ssh server on each of the hosts; all that it has started has ended at the end."""
    Path("/run/sshd").mkdir(exist_ok=True)
    assert SSHD is not None
    nowhere = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    servers = [
        one.start(
            *("setpriv", "--pdeathsig", "KILL", SSHD, "-D", "-f", keys.folder / "sshd_config"),
            cwd=keys.folder,
            **nowhere,
        )
        for one in hosts
    ]
    try:
        for host in hosts:
            _wait_for(host)
        yield
    finally:
        for server in servers:
            server.terminate()
            server.wait()


def _wait_for(host: Host) -> None:
    """Waits until the server listens."""
    probe = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"
    wait_for(lambda: host.run("python3", "-c", probe).returncode == 0)
