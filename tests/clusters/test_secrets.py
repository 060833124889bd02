"""Jobs on several hosts with a secret, and the limits of strangers on their network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from safe_launch.core.errors import Refused
from safe_launch.nodes import secret
from safe_launch.nodes.secure_channel import HELLO
from support.hosts import Host, needs_hosts, network
from support.jobs import FAST, PORT, Launcher, begin, ended, ending, exist, job, options
from support.stacks import ROOT
from support.waiting import wait_for

pytestmark = needs_hosts
STAYS = ROOT / "tests" / "programs" / "stays.py"
STRANGER = ROOT / "tests" / "programs" / "stranger.py"
SECRET = "7d9c01" * 10
USAGE, RETRY = 64, 75
LOOKS = f"""
import os, pathlib
everything = pathlib.Path("/proc/self/environ").read_bytes() + repr(dict(os.environ)).encode()
secret = {SECRET[::-1]!r}[::-1].encode()
pathlib.Path(f"looked-{{os.environ['RANK']}}").write_text(str(secret in everything))
"""


def stranger(host: Host, folder: Path, *command: object) -> subprocess.Popen[str]:
    """A stranger's running program."""
    process = host.start(sys.executable, STRANGER, *command, cwd=folder, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    return process


def found_by(process: subprocess.Popen[str]) -> list[str]:
    """The replies to each of a stranger's tries."""
    told: list[str] = json.loads(process.communicate("\n")[0])
    return told


def says_its_end(launcher: Launcher, code: int, text: str) -> None:
    """Waits for a launcher's end with a code and a message."""
    assert launcher.process.wait() == code, launcher.said()
    assert launcher.says(text), launcher.said()


def test_strangers_get_nothing(tmp_path: Path) -> None:
    """Forged joins and failures and replayed recordings have no effect.

    A stranger between node 1 and node 0 forwards everything. It learns no word of the job,
    and the secret is in no file, process list or worker.
    """
    script = tmp_path / "train.py"
    script.write_text(LOOKS + STAYS.read_text())
    own, env = ("--rdzv-id=the-jobs-name", *FAST), {"SAFE_LAUNCH_SECRET": SECRET}
    with network("alpha", "beta", "gamma") as hosts:
        alpha, beta, gamma = hosts
        relay = stranger(gamma, tmp_path, "relay", "alpha", PORT)
        head = begin(alpha, tmp_path, *options(hosts[:2], 0, *own), script, tmp_path, 0, env=env)
        wait_for(lambda: head.says("1 of 2 nodes have joined"))
        early = stranger(gamma, tmp_path, "join", "alpha", PORT)
        told = options(hosts[:2], 1, *own, "--master-addr=gamma")
        node = begin(beta, tmp_path, *told, script, tmp_path, 0, env=env)
        with ending([head, node]):
            wait_for(exist(tmp_path, "ready-0-{}", range(2)))
            late = stranger(gamma, tmp_path, "join", "alpha", PORT)
            commands = [one.cmdline() for host in hosts[:2] for one in host.processes()]
            assert SECRET not in str(commands)
            (tmp_path / "finish").touch()
            ended([head, node], 0)
        replies = found_by(early) + found_by(late) + found_by(relay)
        assert "the-jobs-name" not in str(replies)
        assert [reply for reply in replies if "alpha" in reply or "beta" in reply] == []
        assert not head.says("evil")
        assert not head.says("aren't protected")
    assert [(tmp_path / f"looked-{rank}").read_text() for rank in range(2)] == ["False"] * 2
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert [text for text in written if SECRET.encode() in text] == []


def test_a_forged_node_0(tmp_path: Path) -> None:
    """A program that takes the port first can't act as node 0: node 1 ends with the reason.

    It may have no secret, another secret, or a recording.
    """
    with network("alpha", "beta") as hosts:
        for kind, text in (
            ("open", "node 0 has no secret to prove itself, this node a secret"),
            ("forged", "its secret isn't this node's; give every node the same"),
        ):
            holder = stranger(hosts[0], tmp_path, "host", PORT, kind)
            command = options(hosts, 1, *FAST), STAYS, tmp_path, 0
            node = begin(hosts[1], tmp_path, *command[0], *command[1:], env=env_of(SECRET))
            with ending([node]):
                says_its_end(node, USAGE, text)
            assert found_by(holder) != []
        assert list(tmp_path.glob("ready-*")) == []


def env_of(secret: str | None) -> dict[str, object]:
    """The variables of a launcher with a secret."""
    return {} if secret is None else {"SAFE_LAUNCH_SECRET": secret}


def test_nodes_with_different_secrets(tmp_path: Path) -> None:
    """Node 1 ends with advice; node 0 names it and waits for the right one."""
    script = (STAYS, tmp_path, 0)
    (tmp_path / "finish").touch()
    with network("alpha", "beta") as hosts:
        head = begin(hosts[0], tmp_path, *options(hosts, 0, *FAST), *script, env=env_of(SECRET))
        with ending([head]):
            for secret, there, here in (
                ("0" * 32, "its secret isn't this node's", "its secret isn't this job's"),
                (None, "node 0 has a secret to prove itself, this node no", "it has no secret"),
            ):
                command = (*options(hosts, 1, *FAST), *script)
                node = begin(hosts[1], tmp_path, *command, env=env_of(secret))
                with ending([node]):
                    says_its_end(node, USAGE, there)
                wait_for(lambda here=here: head.says(f"refused a node: 10.78.0.\\d+: {here}"))  # type: ignore[misc]
            (tmp_path / "secret").write_text(SECRET)
            (tmp_path / "secret").chmod(0o600)
            told = options(hosts, 1, *FAST, "--secret-file=secret", "--require-secret")
            node = begin(hosts[1], tmp_path, *told, *script)
            with ending([node]):
                ended([head, node], 0)


def test_without_a_secret(tmp_path: Path) -> None:
    """The job runs like torchrun's, with a line from node 0; --require-secret refuses."""
    (tmp_path / "finish").touch()
    with network("alpha", "beta") as hosts:
        with job(tmp_path, hosts, STAYS, tmp_path, 0, own=FAST) as launchers:
            ended(launchers, 0)
            lines = [count(launcher, "aren't protected") for launcher in launchers]
            assert lines == [1, 0]
        with job(tmp_path, hosts, STAYS, tmp_path, 0, own=("--require-secret",)) as launchers:
            ended(launchers, USAGE)
            for launcher in launchers:
                assert launcher.says("--require-secret: the job's 2 nodes have no secret")


def count(launcher: Launcher, text: str) -> int:
    """How many of a launcher's lines contain a text."""
    return sum(text in line for line in launcher.said().splitlines())


@pytest.mark.parametrize("place", [2, 1], ids=["elsewhere", "beside-node-1"])
def test_a_flood(place: int, tmp_path: Path) -> None:
    """Endless connections from one host don't prevent the job's start."""
    own = ("--node-timeout=60", *FAST)  # during a flood a node retries its join
    (tmp_path / "finish").touch()
    with network("alpha", "beta", "gamma") as hosts:
        pair: Sequence[Host] = hosts[:2]
        script = (STAYS, tmp_path, 0)
        head = begin(hosts[0], tmp_path, *options(pair, 0, *own), *script, env=env_of(SECRET))
        with ending([head]):
            wait_for(lambda: head.says("1 of 2 nodes have joined"))
            flood = stranger(hosts[place], tmp_path, "flood", "alpha", PORT)
            node = begin(hosts[1], tmp_path, *options(pair, 1, *own), *script, env=env_of(SECRET))
            with ending([node]):
                for launcher in (head, node):
                    launcher.process.wait()
                flood.kill()
                flood.communicate()
                ended([head, node], 0)


@pytest.mark.skipif(shutil.which("munged") is None, reason="munge isn't installed")
def test_munge_hides_a_key_from_other_users() -> None:
    """Only the addressed user can decode it, once, and its sender is known."""
    other = 12_345
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o600)
        place = str(folder / "socket")
        names = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        files = [f"--{option}={folder / file}" for option, file in names.items()]
        command = ["munged", "--foreground", "--force", f"--socket={place}", *files]
        daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: Path(place).exists())
            mine = secret.munge_encoded(b"key", os.getuid(), place)
            assert isinstance(mine, bytes)
            assert len(mine) < HELLO.size - 64
            assert secret.munge_decoded(mine, os.getuid(), place) == b"key"
            assert secret.munge_decoded(mine, os.getuid(), place) == Refused(
                "munge: Replayed credential"
            )
            theirs = secret.munge_encoded(b"key", other, place)
            assert isinstance(theirs, bytes)
            refused = secret.munge_decoded(theirs, os.getuid(), place)
            assert refused == Refused("munge: Unauthorized credential")
            as_other = ("setpriv", f"--reuid={other}", "--clear-groups", "munge", "-S", place)
            text = subprocess.run([*as_other, "-n"], capture_output=True, check=True).stdout
            found = secret.munge_decoded(text.strip(), os.getuid(), place)
            assert found == Refused("munge's credential belongs to another user")
        finally:
            daemon.terminate()
            daemon.wait()
