"""Launches over several hosts from one, through real ssh servers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from support.hosts import Host, network
from support.ssh_servers import Keys, keys, needs_ssh, serving
from support.stacks import CURRENT, ROOT
from support.waiting import wait_for

PROGRAMS = ROOT / "tests" / "programs"
LAUNCHER = CURRENT.bin / "safe-launch"
FAST = ("--leave-timeout=1",)


@dataclass(frozen=True)
class Site:
    """Hosts with ssh servers.

    Attributes:
        first: the launching host, also first in the hostfile.
        second: another host.
        third: a host without an ssh server.
        keys: the ssh keys.
        folder: this test's folder.
    """

    first: Host
    second: Host
    third: Host
    keys: Keys
    folder: Path

    def start(
        self, *arguments: object, hosts: str = "alpha beta", **variables: str
    ) -> subprocess.Popen[str]:
        """Launches on hosts of these names, with one slot each."""
        text = "".join(f"{name} slots=1\n" for name in hosts.split())
        (self.folder / "hostfile").write_text(text)
        own = ("--log-dir", self.folder / "runs", *FAST)
        return self.first.start(
            *(LAUNCHER, "--hostfile", "hostfile", *self.keys.options, *own, *arguments),
            cwd=self.folder,
            env={**CURRENT.environment(), **variables},
        )

    def run(self, *arguments: object, hosts: str = "alpha beta", **variables: str) -> End:
        """Launches and waits for the end."""
        process = self.start(*arguments, hosts=hosts, **variables)
        return ended(process)

    def launched(self) -> list[psutil.Process]:
        """Processes on the hosts besides the servers: launchers, workers, ssh."""
        every = [one for host in (self.first, self.second) for one in host.processes()]
        return [one for one in every if not _is_listening(one)]


@dataclass(frozen=True)
class End:
    """The exit code and output of a launch."""

    code: int
    stdout: str
    stderr: str


def ended(process: subprocess.Popen[str]) -> End:
    """Waits for a launch to end."""
    stdout, stderr = process.communicate()
    return End(process.returncode, stdout, stderr)


def _is_listening(process: psutil.Process) -> bool:
    """Whether it is a listening ssh server; a session's has a longer title."""
    try:
        return "-D" in process.cmdline() and process.name() == "sshd"
    except psutil.Error:
        return True


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[str] | None = None
) -> None:
    """Waits; fails if the process ends meanwhile."""

    def has_come() -> object:
        assert process is None or process.poll() is None, process.communicate()
        return condition()

    wait_for(has_come)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[Host, ...], Keys]]:
    """Three hosts, two of them with ssh servers."""
    own = keys(tmp_path_factory.mktemp("ssh") / "the keys")
    with network("alpha", "beta", "gamma") as hosts, serving(own, *hosts[:2]):
        yield hosts, own


@pytest.fixture
def site(servers: tuple[tuple[Host, ...], Keys], tmp_path: Path) -> Iterator[Site]:
    """The hosts, with a folder name that needs quoting; no process may be left."""
    (first, second, third), own = servers
    (folder := tmp_path / "it's a $HOME").mkdir()
    result = Site(first, second, third, own, folder)
    yield result
    own.configure()
    try:
        wait_until(lambda: not result.launched())
    finally:
        for process in result.launched():
            process.kill()


ODD = ("two words", "it's", 'a "quote"', "$HOME `id` \\", "new\nline", "ünï", "", "-x", "*")


@needs_ssh
def test_two_hosts_train_together(site: Site) -> None:
    """Arguments, folder and environment arrive unchanged; no command line has a secret."""
    (site.folder / ".deepspeed_env").write_text("MY_TOKEN=hush2\nFROM_HOST='at ${SSH_CLIENT}'\n")
    words = {"NCCL_WORD": "a 'b' $c\nd", "HF_TOKEN": "hush1"}
    process = site.start("-v", PROGRAMS / "tells.py", *ODD, hosts="localhost beta", **words)
    told = [site.folder / f"told-{rank}" for rank in (0, 1)]
    wait_until(lambda: all(one.exists() for one in told), process)
    lines = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    (site.folder / "finish").touch()
    end = ended(process)
    assert end.code == 0, end.stderr
    assert not [line for line in lines if "hush" in line]
    assert "aren't protected" not in end.stderr
    for name, one in zip(("alpha", "beta"), told, strict=True):
        things = json.loads(one.read_text())
        environment = things.pop("environment")
        assert {
            "host": name,
            "sum": 3.0,
            "arguments": [*ODD],
            "folder": str(site.folder),
        } == things
        assert environment["NCCL_WORD"] == "a 'b' $c\nd"
        assert (environment["HF_TOKEN"], environment["MY_TOKEN"]) == ("hush1", "hush2")
        source = {"alpha": "127.0.0.1", "beta": site.first.address}[name]
        assert environment["FROM_HOST"].startswith(f"at {source} ")
        assert environment["CUDA_VISIBLE_DEVICES"] == "0"
        assert "SAFE_LAUNCH_SECRET" not in environment
    assert sorted(end.stdout.splitlines()) == ["rank 0 has told", "rank 1 has told"]
    assert "hosts    localhost, beta: 1 worker each (hostfile)" in end.stderr
    assert f"node 0   {site.first.address}:29500" in end.stderr
    assert "hush" not in end.stderr


WAITS = """
import os, signal, time
from pathlib import Path
own = os.environ
caught = []
signal.signal(signal.SIGCONT, lambda *_: caught.append(1))
words = (own["ROLE_NAME"], own["LOCAL_RANK"], own["CROSS_RANK"], own["FROM_SCRIPT"])
Path(f"waits-{own['RANK']}").write_text(" ".join(words))
while not caught:
    time.sleep(0.02)
"""


@needs_ssh
def test_options_hold_on_every_host(site: Site) -> None:
    """Torchrun's variables, an environment's script, signals for the workers."""
    (site.folder / "waits.py").write_text(WAITS)
    (site.folder / "set up.sh").write_text('export FROM_SCRIPT="set by $BASH_SUBSHELL"\n')
    options = ("--venv_script", "set up.sh", "--signals-to-handle=SIGCONT", "-q", "--no_ssh_check")
    process = site.start(*options, "waits.py", PET_ROLE="far")
    files = [site.folder / f"waits-{rank}" for rank in (0, 1)]
    wait_until(lambda: all(one.exists() and one.read_text() for one in files), process)
    process.send_signal(signal.SIGCONT)
    end = ended(process)
    assert end.code == 0, end.stderr
    assert [one.read_text() for one in files] == ["far 0 0 set by 0", "far 0 1 set by 0"]
    assert "[safe-launch]" not in end.stderr


@needs_ssh
def test_a_host_without_the_script_of_an_environment(site: Site) -> None:
    """The host is named, and no worker starts."""
    end = site.run("--venv_script=absent.sh", PROGRAMS / "fails.py", "0:exit1")
    assert end.code == 64, end.stderr
    assert "host alpha has no --venv_script absent.sh" in end.stderr


@needs_ssh
@pytest.mark.parametrize("how", ["exit42", "leave255"])
def test_the_exit_code_is_the_workers(site: Site, how: str) -> None:
    """Even if it equals ssh's own error code."""
    end = site.run(PROGRAMS / "fails.py", f"0:{how}", hosts="beta")
    assert end.code == int(how.strip("exitlav")), end.stderr


@needs_ssh
def test_a_failure_on_the_second_host_ends_both(site: Site) -> None:
    """The code is the failed worker's, and its traceback is printed once."""
    end = site.run(PROGRAMS / "fails.py", "1:raise")
    assert end.code == 1, end.stderr
    assert "ValueError: the bug of rank 1" in end.stderr
    assert end.stderr.count("Traceback (most recent call last)") == 1
    assert "[safe-launch] beta:" not in end.stderr, "the first host's launcher has said it all"


@needs_ssh
@pytest.mark.parametrize(
    ("hosts", "configured", "code", "problem"),
    [
        ("alpha gamma", {}, 75, "host gamma (hostfile:2): can't be reached (ssh: connect to host"),
        ("nobody alpha", {}, 64, "host nobody (hostfile:1): the name has no address"),
        ("alpha beta", {"identity": "stranger"}, 64, "host beta (hostfile:2): ssh isn't let in"),
        ("alpha beta", {"known": "strangers"}, 64, "host alpha (hostfile:1): its key isn't known"),
    ],
    ids=["unreachable", "no-address", "no-key", "unknown-host"],
)
def test_a_host_that_cant_be_reached(
    site: Site, hosts: str, configured: dict[str, str], code: int, problem: str
) -> None:
    """It is named with its line and ssh's message; no host starts workers."""
    site.keys.configure(**configured)
    end = site.run(PROGRAMS / "fails.py", "0:exit1", hosts=hosts)
    assert end.code == code, end.stderr
    assert problem in end.stderr
    assert "hint: " in end.stderr
    assert not (site.folder / "runs").exists()


@needs_ssh
def test_a_host_without_the_folder(site: Site, tmp_path: Path) -> None:
    """The other host doesn't wait for it."""
    (empty := tmp_path / "empty").mkdir()
    assert site.second.run("mount", "--bind", empty, site.folder.parent).returncode == 0
    try:
        end = site.run(PROGRAMS / "fails.py")
    finally:
        site.second.run("umount", site.folder.parent)
    assert end.code == 64, end.stderr
    assert f"host beta can't use the folder {site.folder}: No such file" in end.stderr


@needs_ssh
def test_a_host_without_the_environment(site: Site, tmp_path: Path) -> None:
    """The interpreter must have the same path there."""
    (empty := tmp_path / "empty").mkdir()
    assert site.second.run("mount", "--bind", empty, CURRENT.bin).returncode == 0
    try:
        end = site.run(PROGRAMS / "fails.py", "0:exit1")
    finally:
        site.second.run("umount", CURRENT.bin)
    assert end.code == 64, end.stderr
    assert f"host beta (hostfile:2): there is no {CURRENT.bin / 'python'}" in end.stderr


@needs_ssh
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_reaches_the_workers_of_all_hosts(site: Site, number: signal.Signals) -> None:
    """They get their grace period, and the launch ends as on a single host.

    An earlier SIGUSR1 reaches the worker with a handler.
    """
    process = site.start(PROGRAMS / "stubborn.py", site.folder, number.name)
    wait_until(lambda: all((site.folder / f"ready-{rank}").exists() for rank in (0, 1)), process)
    process.send_signal(signal.SIGUSR1)
    wait_until((site.folder / "signals-0").exists, process)
    process.send_signal(number)
    end = ended(process)
    assert end.code == 128 + number, end.stderr
    for rank, earlier in enumerate(("SIGUSR1\n", "")):
        assert (site.folder / f"signals-{rank}").read_text() == f"{earlier}{number.name}\n"
        assert (site.folder / f"goodbye-{rank}").exists()


@needs_ssh
def test_nothing_outlives_a_killed_launcher(site: Site) -> None:
    """The hosts notice the closed connection; the workers get SIGTERM."""
    process = site.start(PROGRAMS / "stubborn.py", site.folder, "SIGTERM")
    wait_until(lambda: all((site.folder / f"ready-{rank}").exists() for rank in (0, 1)), process)
    process.kill()
    process.communicate()
    wait_until(lambda: not site.launched())
    for rank in (0, 1):
        assert (site.folder / f"goodbye-{rank}").exists()


@needs_ssh
def test_nothing_outlives_a_lost_connection(site: Site) -> None:
    """The launch ends with the code for a retry elsewhere and names the host."""
    process = site.start(PROGRAMS / "stubborn.py", site.folder, "SIGTERM", hosts="beta")
    wait_until(lambda: (site.folder / "ready-0").exists(), process)
    [ssh] = [one for one in site.launched() if one.name() == "ssh"]
    ssh.kill()
    end = ended(process)
    assert end.code == 75, end.stderr
    assert "lost the connection to host beta (hostfile:1)" in end.stderr
    wait_until(lambda: not site.launched())


def test_silence_counts_as_the_end(tmp_path: Path) -> None:
    """A silently cut connection stops the training after a while."""
    code = (
        "import sys; from safe_launch.nodes.ssh import remote_main as remote; "
        "remote.SILENCE = 3.0; remote.main('r')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=CURRENT.environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    arguments = ["--log-dir", str(tmp_path), *FAST, str(PROGRAMS / "stubborn.py"), str(tmp_path)]
    job = {"folder": str(tmp_path), "arguments": [*arguments, "SIGTERM"], "devices": [0]}
    process.stdin.write(f"{json.dumps(job)}\n".encode())
    process.stdin.flush()
    while not (tmp_path / "ready-0").exists():
        process.stdin.write(b"\n")
        process.stdin.flush()
        time.sleep(0.1)
    words = process.stdout.read().decode()
    assert words.startswith("\x1er ready")
    assert words.endswith("\x1er ended 143\n")
    assert (tmp_path / "goodbye-0").exists()
    process.communicate()


@pytest.mark.parametrize(
    ("arguments", "variables", "problem"),
    [
        (("--nnodes", "2"), {}, "--hostfile and --nnodes 2 both choose"),
        (("--nproc", "2"), {}, "--hostfile and --nproc 2 both choose"),
        ((), {"PET_NNODES": "2"}, "--hostfile and PET_NNODES=2 both choose"),
        (
            (),
            dict.fromkeys(("SLURM_JOB_ID", "SLURM_NNODES", "SLURM_NTASKS"), "2")
            | dict.fromkeys(("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NODEID"), "0"),
            "--hostfile and Slurm, which has started this one as one of 2 launchers both choose",
        ),
        (("--include", "a", "--exclude", "a"), {}, "--include a and --exclude a contradict"),
        (("--include", "a", "--num_nodes", "1"), {}, "--num_nodes and --include both choose"),
    ],
)
def test_contradictions_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], problem: str
) -> None:
    """Both settings are named."""
    (tmp_path / "hostfile").write_text("a slots=1\nb slots=1\n")
    end = CURRENT.run(
        "safe-launch", "-H", "hostfile", *arguments, "x.py", cwd=tmp_path, **variables
    )
    assert end.returncode == 64
    assert problem in end.stderr


def test_this_machine_alone_needs_no_ssh(tmp_path: Path) -> None:
    """If the only host is this one, its workers start from here."""
    (tmp_path / "hostfile").write_text("localhost slots=2\n")
    (tmp_path / "finish").touch()
    end = CURRENT.run(
        *("safe-launch", "-H", "hostfile", "--log-dir", tmp_path, PROGRAMS / "tells.py"),
        cwd=tmp_path,
        PATH=f"{CURRENT.bin}:{tmp_path}",
    )
    assert end.returncode == 0, end.stderr
    assert json.loads((tmp_path / "told-1").read_text())["sum"] == 3.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-H", "hostfile"), "far-1, far-2: 4 workers each (hostfile)"),
        (("--num_gpus", "3"), "on 3 x cpu"),
    ],
)
def test_a_plan_needs_no_ssh(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    """It covers all hosts' workers; without a hostfile, the requested number here."""
    (tmp_path / "hostfile").write_text("far-1 slots=4\nfar-2 slots=4\n")
    (tmp_path / "x.py").write_text("")
    end = CURRENT.run("safe-launch", "plan", *options, "x.py", cwd=tmp_path)
    assert end.returncode == 0, end.stderr
    assert words in end.stdout + end.stderr
