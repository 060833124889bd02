"""A kubelet and a Job controller for the tests: the pods of a manifest, run on the tests' hosts.

    with network("a-0", "a-1", resolve=False) as hosts, job(folder, hosts, "train.py") as one:
        one.start_all()
        assert one.settle() == "Complete"

A pod is a container: it has the host's network and name, processes of its own, of which the command
is the first, a small /dev with shared memory as the manifest wants it, and the variables that a pod
gets. Names of other pods come as they do from the cluster's name server: when somebody says so.
"""

from __future__ import annotations

import signal
import subprocess
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from safe_launch.commands import cluster_files
from safe_launch.commands.cluster_files import TemplateJob

from support.hosts import Host
from support.stacks import CURRENT
from support.waiting import LONG, wait_for

CONTAINER = """
set -e
mount -t proc proc /proc
mount -t tmpfs none "$1"
for name in null zero random urandom; do
  touch "$1/$name"
  mount --bind "/dev/$name" "$1/$name"
done
ln -s /proc/self/fd "$1/fd"
mkdir "$1/shm"
mount -t tmpfs -o "size=$3" shm "$1/shm"
touch "$1/termination-log"
mount --bind "$2" "$1/termination-log"
mount --rbind "$1" /dev
shift 3
exec "$@"
"""
"""Makes /proc and /dev as a container runtime does, this in the folder $1; becomes the command."""
OUTSIDE = '"$@"; exit $?'
"""Stays outside of the processes' namespace, waits for its first, and ends with its exit code."""


@dataclass(frozen=True)
class Pod:
    """A pod that runs or has run.

    Attributes:
        index: its completion index.
        host: where it runs.
        process: what stands outside of its process namespace and waits for its first process.
        log: its output.
        last_words: what the kubelet would take its termination message from.
        grace: seconds between SIGTERM and SIGKILL.
    """

    index: int
    host: Host
    process: subprocess.Popen[str]
    log: Path
    last_words: Path
    grace: float

    def first(self) -> psutil.Process:
        """Its first process, as the machine sees it."""
        (found,) = psutil.Process(self.process.pid).children()
        return found

    def end(self, seconds: float = LONG) -> int:
        """Waits for its end; the exit code as a container has it."""
        return self.process.wait(seconds)

    def delete(self) -> int:
        """Ends it as the kubelet does; the exit code."""
        for number, seconds in ((signal.SIGTERM, self.grace), (signal.SIGKILL, LONG)):
            with suppress(psutil.NoSuchProcess):
                for one in psutil.Process(self.process.pid).children():
                    one.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                return self.end(seconds)
        raise AssertionError("it can't be killed")

    def says(self, text: str) -> bool:
        """Whether its output has a text, wherever lines are broken."""
        words = " ".join(self.log.read_text().replace("[safe-launch]", "").split())
        return text in words

    @property
    def message(self) -> str:
        """Its termination message."""
        return self.last_words.read_text()


@dataclass
class Job:
    """An Indexed Job, and what its controller would do.

    Attributes:
        manifest: the Job.
        hosts: where each pod runs, by its index.
        folder: for what the pods leave.
        secret: the content of its Secret.
        pods: those that run, or have run last, by their index.
        running: indexes of those whose end has not been judged yet.
        ended: index and exit code of each pod that has ended, in order.
        failures: failures that count, by index.
        disrupted: indexes of the pods that are being preempted.
    """

    manifest: Mapping[str, Any]
    hosts: Sequence[Host]
    folder: Path
    secret: Mapping[str, str]
    pods: dict[int, Pod] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    ended: list[tuple[int, int]] = field(default_factory=list)
    failures: dict[int, int] = field(default_factory=dict)
    disrupted: set[int] = field(default_factory=set)

    def start(self, index: int) -> Pod:
        """Starts the pod of an index, as the kubelet does."""
        template = self.manifest["spec"]["template"]["spec"]
        (container,) = template["containers"]
        host, name = self.hosts[index], self.manifest["metadata"]["name"]
        volumes = {one["name"]: one["emptyDir"] for one in template["volumes"]}
        mounted = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
        place = self.folder / f"pod-{index}-{len(self.ended)}"
        (place / "dev").mkdir(parents=True)
        (last_words := place / "termination-log").touch()
        size = mounted["/dev/shm"]["sizeLimit"].removesuffix("i")
        make = ("sh", "-c", CONTAINER, "sh", place / "dev", last_words, size)
        apart = ("unshare", "--pid", "--mount", "sh", "-c", OUTSIDE, "sh")
        bound = ("setpriv", "--pdeathsig", "KILL")
        command = (CURRENT.bin / "safe-launch", *container["args"])
        given = {
            one["name"]: self.secret[one["valueFrom"]["secretKeyRef"]["key"]]
            if "valueFrom" in one
            else one["value"]
            for one in container["env"]
        }
        stack = CURRENT.environment()
        with (place / "log").open("w") as log:
            process = host.start(
                *(*apart, *bound, *make, *command),
                cwd=self.folder,
                env={
                    **{
                        key: stack[key]
                        for key in ("PATH", "TORCH_EXTENSIONS_DIR", "DS_ACCELERATOR")
                    },
                    "HOME": str(place),
                    "HOSTNAME": f"{name}-{index}",
                    "JOB_COMPLETION_INDEX": str(index),
                    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
                    "OMP_NUM_THREADS": "1",
                    **given,
                },
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        grace = template["terminationGracePeriodSeconds"]
        self.running.add(index)
        pod = self.pods[index] = Pod(index, host, process, place / "log", last_words, grace)
        return pod

    def publish(self, index: int, *to: int) -> None:
        """Lets pods resolve another's name."""
        template, name = (
            self.manifest["spec"]["template"]["spec"],
            self.manifest["metadata"]["name"],
        )
        short = f"{name}-{index}.{template['subdomain']}"
        for one in to:
            self.hosts[one].learn(self.hosts[index], f"{short}.default.svc.cluster.local", short)

    def start_all(self) -> None:
        """Starts every pod, each of which knows its own name and those before it."""
        for index in range(self.manifest["spec"]["completions"]):
            self.publish(index, *range(len(self.hosts)))
            self.start(index)

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition holds, while no pod ends."""

        def has_come() -> bool:
            assert [one for one in self.running if self.pods[one].process.poll() is not None] == []
            return condition()

        wait_for(has_come)

    def preempt(self, index: int) -> None:
        """Takes a pod's node from it."""
        self.disrupted.add(index)
        self.pods[index].delete()

    def judge(self, *indexes: int) -> None:
        """Waits until the pods of some indexes have ended, and replaces them."""
        for index in indexes:
            self.pods[index].end()
        for index in indexes:
            assert self._goes_on(index)

    def settle(self, seconds: float = LONG) -> str:
        """Replaces pods that end until the job is over: `Complete` or `Failed`.

        The controller's back-off (ten seconds and more) is left out.
        """
        deadline = time.monotonic() + seconds
        while self.running:
            assert time.monotonic() < deadline, "the job hangs"
            time.sleep(0.05)
            for index in [one for one in self.running if self.pods[one].process.poll() is not None]:
                if not self._goes_on(index):
                    return "Failed"
        return "Complete"

    def _goes_on(self, index: int) -> bool:
        """Judges a pod that has ended; whether the job isn't over for that."""
        spec, code = self.manifest["spec"], self._end(index)
        if code == 0:
            return True
        action = decided(spec["podFailurePolicy"]["rules"], code, index in self.disrupted)
        self.disrupted.discard(index)
        self.failures[index] = self.failures.get(index, 0) + (action == "Count")
        if action == "FailJob" or self.failures[index] > spec["backoffLimitPerIndex"]:
            for one in [*self.running]:
                self.pods[one].delete()
                self._end(one)
            return False
        self.start(index)
        return True

    def _end(self, index: int) -> int:
        code = self.pods[index].end()
        self.running.remove(index)
        self.ended.append((index, code))
        return code


@contextmanager
def job(folder: Path, hosts: Sequence[Host], *command: object) -> Iterator[Job]:
    """The job of the manifest that `template kubernetes` writes; whatever is left is killed.

    Args:
        folder: where the pods run.
        hosts: theirs, by their index, named as they will be: `NAME-INDEX`.
        command: safe-launch's options, the script and its arguments.
    """
    name = hosts[0].name.removesuffix("-0")
    own = ("--log-dir", folder / "runs", *command)
    wanted = TemplateJob(name, len(hosts), 1, tuple(map(str, own)))
    parser = ArgumentParser()
    cluster_files.add_manifest_options(parser)
    options = parser.parse_args(["--image=none", "--variant=indexed-job"])
    text = cluster_files.manifest(wanted, options)
    secret, _, manifest = yaml.safe_load_all(text)
    found = Job(manifest, hosts, folder, secret["stringData"])
    try:
        yield found
    except BaseException:
        for path in sorted(folder.glob("pod-*/log")):
            print(f"----- {path.parent.name}:\n{path.read_text()[-6000:]}")
        raise
    finally:
        for pod in found.pods.values():
            pod.process.kill()
            pod.process.wait()


def decided(rules: Sequence[Any], code: int, is_disrupted: bool = False) -> str:
    """What the Job controller does with a pod that ended so: the first rule that matches."""
    for rule in rules:
        for condition in rule.get("onPodConditions", []):
            if is_disrupted and condition == {"type": "DisruptionTarget", "status": "True"}:
                return str(rule["action"])
        if "onExitCodes" in rule and code:
            is_listed = code in rule["onExitCodes"]["values"]
            if is_listed == (rule["onExitCodes"]["operator"] == "In"):
                return str(rule["action"])
    return "Count"
