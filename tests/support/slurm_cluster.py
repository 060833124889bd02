"""A Slurm of the tests' own: a real controller and two real nodes on one machine.

Debian's slurmctld, slurmd and munged, without systemd or cgroups, each node a host of
its own (`hosts`). The accelerators are other devices, which nobody opens.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.hosts import Host, network
from support.waiting import wait_for

NODES = ("gpu01", "gpu02")
DEVICES = ("null", "zero", "random", "urandom")
"""What Slurm takes for accelerators: it wants devices, but only counts and assigns them."""
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
TRACKING = os.environ.get("TRACKING", "linuxproc")
"""How Slurm finds a step's processes. `TRACKING=cgroup`, as most clusters have it, takes cgroups of
version 1; equal names on one machine share them: let no other Slurm of the tests run beside it."""
KILL_WAIT = 60
"""Seconds that Slurm waits from SIGTERM to SIGKILL; 30 where a site doesn't say."""

# Sources of what isn't plain: slurm.conf(5), gres.conf(5), cgroup.conf(5) of Slurm 22.05.
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=login
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until its earlier credential has expired, 120 s by default.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
GresTypes=gpu
ReturnToService=2
KillWait={kill_wait}
SlurmdTimeout=20
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
# Nodes have as many cores as is said here, however few the machine has.
SlurmdParameters=config_overrides
NodeName={names} CPUs=8 RealMemory=4000 Gres=gpu:a100:{gpus} State=UNKNOWN
PartitionName=work Nodes={names} Default=YES PriorityTier=1 GraceTime={kill_wait}
PartitionName=urgent Nodes={names} PriorityTier=2
"""


@dataclass(frozen=True)
class Cluster:
    """A running Slurm.

    Attributes:
        folder: its configuration, state and logs.
        login: the host that has the controller and that people work on.
        nodes: the hosts that jobs run on.
        daemons: the process of each daemon, by the name of its host or program.
    """

    folder: Path
    login: Host
    nodes: tuple[Host, ...]
    daemons: dict[str, subprocess.Popen[bytes]]

    def start_daemon(self, host: Host, *command: str | Path) -> subprocess.Popen[bytes]:
        """Starts a daemon in the foreground, so that it ends with the tests."""
        own = host.command("setpriv", "--pdeathsig", "KILL", *command, cwd=self.folder)
        with (self.folder / "daemons.out").open("ab") as file:
            return subprocess.Popen(own, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def start_node(self, node: Host) -> None:
        """Starts a node's daemon, which registers with the controller."""
        command = ("slurmd", "-D", "-N", node.name, "-f", self.folder / "slurm.conf")
        self.daemons[node.name] = self.start_daemon(node, *command)

    def restore(self) -> None:
        """Makes the nodes ready for the next job, whatever has been done to them."""
        for node in self.nodes:
            if self.daemons[node.name].poll() is not None:
                self.start_node(node)
        wait_for(self.idle, self.logs)
        for node in self.nodes:
            for process in node.processes():
                if process.pid != self.daemons[node.name].pid:
                    process.kill()

    def idle(self) -> bool:
        """Whether all nodes are there and have nothing to do."""
        states = self.run("sinfo", "-h", "-N", "-p", "work", "-o", "%T").split()
        return states == ["idle"] * len(self.nodes)

    def run(self, *command: str | Path, **variables: str) -> str:
        """What a command on the login host writes.

        Raises:
            AssertionError: it failed.
        """
        kept = {name: text for name, text in os.environ.items() if not name.startswith("SLURM")}
        done = subprocess.run(
            self.login.command(*command, cwd=self.folder),
            env={**kept, "SLURM_CONF": str(self.folder / "slurm.conf"), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *options: str | Path, **variables: str) -> str:
        """Submits a batch job; returns its number."""
        return self.run("sbatch", "--parsable", *options, **variables).strip()

    def field(self, job: str, name: str) -> str:
        """What `scontrol` says of a job, e.g. its `JobState`."""
        text = self.run("scontrol", "show", "job", job)
        found = re.search(rf"\b{name}=(\S*)", text)
        assert found, f"no {name} in {text}"
        return found[1]

    def wait(self, job: str, *states: str) -> str:
        """Waits until a job is in one of the states; without any, until it has ended."""
        wanted = states or ENDS
        wait_for(lambda: self.field(job, "JobState") in wanted, self.logs)
        return self.field(job, "JobState")

    def logs(self) -> str:
        """The ends of the daemons' logs, for a message of failure."""
        texts = [
            f"== {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log")
        ]
        return "\n".join(texts)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Brings a cluster up, and takes it down with every process of its hosts."""
    _write_configuration(folder)
    with network("login", *NODES) as (login, *nodes):
        result = Cluster(folder, login, tuple(nodes), {})
        try:
            keys = folder / "munge"
            files = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
            options = [f"--{option}={keys / name}" for option, name in files.items()]
            socket = keys / "socket"
            # --force: it frowns upon the temporary folder, which everybody may write to.
            munged = ("munged", "--foreground", "--force", f"--socket={socket}", *options)
            result.daemons["munged"] = result.start_daemon(login, *munged)
            wait_for(socket.exists, result.logs)
            slurmctld = ("slurmctld", "-D", "-c", "-i", "-f", folder / "slurm.conf")
            result.daemons["slurmctld"] = result.start_daemon(login, *slurmctld)
            for node in nodes:
                result.start_node(node)
            wait_for(result.idle, result.logs)
            yield result
        finally:
            for daemon in result.daemons.values():
                daemon.kill()
                daemon.wait()
            wait_for(lambda: not _killed(login, *nodes))


def _killed(*hosts: Host) -> list[psutil.Process]:
    """What still runs on the hosts; it is killed."""
    found = [process for host in hosts for process in host.processes()]
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return found


def _write_configuration(folder: Path) -> None:
    """The files that the daemons read."""
    for name in ("state", "munge", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    (folder / "munge").chmod(0o755)
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    (folder / "munge" / "key").chmod(0o600)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder,
            tracking=TRACKING,
            names=",".join(NODES),
            gpus=len(DEVICES),
            kill_wait=KILL_WAIT,
        )
    )
    devices = [f"Name=gpu Type=a100 File=/dev/{name}\n" for name in DEVICES]
    (folder / "gres.conf").write_text("".join(devices))
    # slurmd loads a plugin for cgroups even where nothing asks for one; a named one isn't probed.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
