"""A real Slurm: its variables for tasks, the shipped batch script, and every way to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from support.hosts import needs_hosts
from support.slurm_cluster import Cluster, cluster
from support.stacks import CURRENT, EXAMPLES, ROOT
from support.waiting import wait_for

PROGRAMS = ROOT / "tests" / "programs"
LAUNCHER = str(CURRENT.bin / "safe-launch")
PLACES = (sys.executable, PROGRAMS / "places.py")
ALIKE = [(0, 2, 0, 1, 2), (1, 2, 0, 1, 2)]
"""One launcher on each of two nodes, with two workers."""
ONE_EACH = [(0, 4, 0, 2, 1), (1, 4, 1, 2, 1), (2, 4, 0, 2, 1), (3, 4, 1, 2, 1)]
"""Two launchers on each of two nodes, with a worker each."""
FOR_HOURS = "--rdzv-conf=join_timeout=36000"
"""A join timeout longer than any test."""
LACKING = [one for one in ("slurmctld", "slurmd", "srun", "munged") if not shutil.which(one)]
pytestmark = [
    needs_hosts,
    pytest.mark.skipif(bool(LACKING), reason=f"Slurm needs {', '.join(LACKING)}"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes with four simulated accelerators each."""
    folder = tmp_path_factory.mktemp("slurm")
    with cluster(folder) as result:
        yield result


@dataclass(frozen=True)
class Job:
    """A job of the shipped batch script.

    Attributes:
        slurm: the cluster.
        folder: the working and output folder.
        number: Slurm's job id.
    """

    slurm: Cluster
    folder: Path
    number: str

    def output(self) -> str:
        """The output so far."""
        return "".join(path.read_text() for path in self.folder.glob("*.out"))

    def end(self) -> tuple[str, str]:
        """Waits for the end; returns Slurm's state and exit code, code:signal."""
        state = self.slurm.wait(self.number)
        wait_for(self.slurm.idle, self.slurm.logs)
        return state, self.slurm.field(self.number, "ExitCode")

    def ready(self, ranks: int = 2, name: str = "ready") -> None:
        """Waits until its workers run: each has written a file."""
        files = [self.folder / f"{name}-{rank}" for rank in range(ranks)]
        self.until(lambda: all(file.exists() for file in files))

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition is true."""
        wait_for(condition, lambda: f"{self.output()}\n{self.slurm.logs()}")

    def launcher(self, node: int) -> psutil.Process:
        """The launcher on a node: the task itself, not its children."""
        (found,) = [
            process
            for process in self.slurm.nodes[node].processes()
            if process.cmdline()[1:2] == [LAUNCHER] and process.parent().name() == "slurmstepd"  # type: ignore[union-attr]
        ]
        return found


@pytest.fixture
def submit(slurm: Cluster, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Submits the batch script from `template` with a user's edits."""
    jobs: list[Job] = []

    def submitted(*words: str | Path, edits: dict[str, str] | None = None) -> Job:
        script = tmp_path / "job.sbatch"
        command = [LAUNCHER, "template", "slurm", "-o", script, "--nodes=2", *words]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        text = script.read_text()
        for old, new in (edits or {}).items():
            assert old in text
            text = text.replace(old, new)
        script.write_text(text)
        own = {name: text for name, text in CURRENT.environment().items() if name not in os.environ}
        path = CURRENT.environment()["PATH"]
        number = slurm.submit(f"--chdir={tmp_path}", script, **{**own, "PATH": path})
        jobs.append(Job(slurm, tmp_path, number))
        return jobs[-1]

    yield submitted
    for job in jobs:  # a failed test's jobs mustn't fail the next one
        slurm.run("scancel", job.number)
        slurm.restore()


def places(text: str) -> list[tuple[int, int, int, int, int | None]]:
    """Rank, nodes, index on the host, launchers on the host and workers of each launcher."""
    found = [json.loads(line) for line in text.splitlines()]
    names = ("rank", "nodes", "local", "beside", "nproc")
    (head,) = [one["host"] for one in found if one["rank"] == 0]
    assert {one["address"] for one in found} <= {head, ""}
    return sorted(tuple(one[name] for name in names) for one in found)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-N2 --ntasks-per-node=1", [(0, 2, 0, 1, None), (1, 2, 0, 1, None)]),
        ("-N2 --ntasks-per-node=1 --gpus-per-node=2", ALIKE),
        ("-N2 --ntasks-per-node=1 --gres=gpu:a100:2", ALIKE),
        ("-N2 --ntasks-per-node=1 --gpus=4", [(0, 2, 0, 1, 3), (1, 2, 0, 1, 1)]),
        ("-N2 --ntasks-per-node=2 --gpus-per-node=2", ONE_EACH),
        ("-N2 --ntasks-per-node=2 --gpus-per-task=1", ONE_EACH),
        ("-N2 -n3", [(0, 3, 0, 2, 1), (1, 3, 1, 2, 1), (2, 3, 0, 1, 1)]),
        ("-N1 -n1 --gpus-per-node=2", [(0, 1, 0, 1, 2)]),
        ("-N1 -n2 --gpus-per-task=a100:2", [(0, 2, 0, 2, 2), (1, 2, 1, 2, 2)]),
    ],
)
def test_what_a_task_is_told(slurm: Cluster, options: str, expected: list[tuple[int, ...]]) -> None:
    """For any way to request tasks, each launcher gets its place and number of workers."""
    assert places(slurm.run("srun", *options.split(), *PLACES)) == expected


@pytest.mark.parametrize(
    ("options", "command", "expected"),
    [
        ("--nodes=2 --gpus-per-node=2", "srun", ALIKE),
        ("--nodes=2 --gres=gpu:a100:2", "srun", ALIKE),
        ("--nodes=2 --gres=gpu:2 --exclusive", "srun", ALIKE),
        ("--nodes=2", "srun -N1 -n1", [(0, 1, 0, 1, None)]),
        ("--nodes=1 --gpus-per-node=2", "", [(0, 1, 0, 1, 2)]),
    ],
)
def test_what_a_batch_job_is_told(
    slurm: Cluster, tmp_path: Path, options: str, command: str, expected: list[tuple[int, ...]]
) -> None:
    """A step inherits the job's request; on one node the batch script needs no srun."""
    assert places(batch(slurm, tmp_path, options, command)) == expected


def test_a_batch_script_of_two_nodes_needs_srun(slurm: Cluster, tmp_path: Path) -> None:
    """Slurm's variables claim task 0 of 2: no second launcher is waited for."""
    for text in (
        batch(slurm, tmp_path, "--nodes=2", ""),
        slurm.run("salloc", "--nodes=2", *map(str, PLACES)),
    ):
        problem = json.loads(text)["problem"]
        assert problem == "the job has 2 nodes (SLURM_NNODES), but only one launcher was started"


def batch(slurm: Cluster, folder: Path, options: str, command: str) -> str:
    """The output of a batch script that prints its launchers' places."""
    script = folder / "places.sbatch"
    script.write_text(f"#!/bin/bash\n{command} {' '.join(map(str, PLACES))}\n")
    output = folder / "places.out"
    job = slurm.submit("--ntasks-per-node=1", f"--output={output}", *options.split(), script)
    assert slurm.wait(job) == "COMPLETED", output.read_text()
    return output.read_text()


def test_what_fails_on_two_nodes_is_corrected_on_both(
    submit: Callable[..., Job], tmp_path: Path
) -> None:
    """The example fails under ZeRO-2; corrected, it trains at once with the right losses."""
    common = ["--max_steps=12", "--learning_rate=1e-2", "--logging_steps=1", "--use_cpu"]
    common += ["--report_to=none", "--save_strategy=no", "--output_dir=out", "--disable_tqdm=True"]
    script = EXAMPLES / "finetune.py"
    single = (*common, "--per_device_train_batch_size=8", "--loss_file=expected.json")
    done = CURRENT.run("python", script, *single, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    dies = [f"--deepspeed={EXAMPLES / 'zero2.json'}", "--gradient_checkpointing=True"]
    dies += ['--gradient_checkpointing_kwargs={"use_reentrant": true}']
    own = ["--per_device_train_batch_size=4", "--loss_file=losses.json"]
    job = submit("--", "--log-dir=runs", script, *common, *dies, *own)
    assert job.end() == ("COMPLETED", "0:0"), job.output()
    said = job.output()
    assert "change   gradient_checkpointing: reentrant -> non_reentrant" in said
    assert "node 1 of 2: joined node 0 (gpu01)" in said
    assert "attempt 1: succeeded" in said
    losses, expected = (
        json.loads((tmp_path / name).read_text()) for name in ("losses.json", "expected.json")
    )
    assert losses == pytest.approx(expected, rel=1e-4)
    assert left(job) == []


def left(job: Job) -> list[str]:
    """Running processes besides Slurm's, and files left by the script."""
    names = [path.name for path in job.folder.glob(".safe-launch-*")]
    for process in [process for node in job.slurm.nodes for process in node.processes()]:
        with suppress(psutil.Error):  # it has just ended
            if process.name() != "slurmd":
                names.append(" ".join(process.cmdline()))
    return names


def test_scancel_ends_everything(submit: Callable[..., Job], tmp_path: Path) -> None:
    """Workers get SIGTERM; stubborn and escaped ones are gone before KillWait."""
    job = submit("--", "--log-dir=runs", "--shutdown-timeout=2", PROGRAMS / "stubborn.py", tmp_path)
    job.ready()
    job.slurm.run("scancel", job.number)
    assert job.end() == ("CANCELLED", "143:0")
    for rank in range(2):
        assert set((tmp_path / f"signals-{rank}").read_text().split()) == {"SIGTERM"}
    assert left(job) == []


def test_a_warning_is_for_those_who_heed_it(submit: Callable[..., Job], tmp_path: Path) -> None:
    """Rank 0 gets SIGUSR1, rank 1 has no handler and continues; the run succeeds."""
    job = submit("--requeues=3", "--", "--log-dir=runs", PROGRAMS / "stubborn.py", tmp_path)
    job.ready()
    job.slurm.run("scancel", "--batch", "--signal=USR1", job.number)
    job.until(lambda: (tmp_path / "signals-0").exists())
    job.until(lambda: "rank 1 has no handler" in job.output())
    (tmp_path / "finish").touch()
    assert job.end() == ("COMPLETED", "0:0")
    assert job.slurm.field(job.number, "Restarts") == "0"
    assert set((tmp_path / "signals-0").read_text().split()) == {"SIGUSR1"}
    assert not (tmp_path / "signals-1").exists()
    for rank in range(2):  # a success leaves the script's own processes running; Slurm need not
        with suppress(ProcessLookupError):
            os.kill(int((tmp_path / f"grandchild-{rank}").read_text()), signal.SIGKILL)


def test_a_task_of_an_array_is_warned_alone(submit: Callable[..., Job], tmp_path: Path) -> None:
    """The last task has the array's job id; the others mustn't get the signal."""
    edits = {"--requeue\n": "--requeue\n#SBATCH --array=1-2\n", "FOLDER": "$SLURM_ARRAY_TASK_ID"}
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    words = ("--nodes=1", "--", "--log-dir=runs", PROGRAMS / "stubborn.py", "FOLDER", "SIGTERM")
    job = submit(*words, edits=edits)
    job.ready(1, "1/ready")
    job.ready(1, "2/ready")
    job.slurm.run("scancel", "--batch", "--signal=USR1", f"{job.number}_2")
    job.until(lambda: (tmp_path / "2" / "signals-0").exists())
    job.slurm.run("scancel", f"{job.number}_1")
    job.until(lambda: (tmp_path / "1" / "goodbye-0").exists())
    job.slurm.run("scancel", f"{job.number}_2")
    job.until(job.slurm.idle)
    assert set((tmp_path / "1" / "signals-0").read_text().split()) == {"SIGTERM"}
    assert set((tmp_path / "2" / "signals-0").read_text().split()) == {"SIGUSR1", "SIGTERM"}
    assert left(job) == []


def test_before_its_time_limit_a_job_queues_itself_again(
    submit: Callable[..., Job], tmp_path: Path
) -> None:
    """A real limit: ranks without a handler get SIGTERM and resume, once."""
    edits = {"--signal=B:USR1@120": "--signal=B:USR1@180", "grace=60": "grace=1"}
    words = ("--time=60", "--requeues=1", "--", "--log-dir=runs", PROGRAMS / "steps.py", tmp_path)
    job = submit(*words, edits=edits)
    job.ready(name="step")
    # Slurm checks every half minute. The limit is set once the steps have begun, two or three
    # minutes ahead: it signals at its next check.
    _, minutes, _ = job.slurm.field(job.number, "RunTime").split(":")
    job.slurm.run("scontrol", "update", f"JobId={job.number}", f"TimeLimit={int(minutes) + 3}")
    job.until(lambda: job.slurm.field(job.number, "Restarts") == "1")
    job.slurm.run("scontrol", "update", f"JobId={job.number}", "TimeLimit=60")
    (tmp_path / "finish").touch()
    assert job.end() == ("COMPLETED", "0:0"), job.output()
    said = job.output()
    assert "exit code 143; queued again: 0 of 1 times so far" in said
    steps = re.findall(r"rank 1 goes on from step (\d+)", said)
    assert len(steps) == 2, said
    first, second = map(int, steps)
    assert first == 0 < second
    assert left(job) == []


@pytest.mark.parametrize("node", [0, 1])
def test_a_lost_launcher_is_tried_elsewhere(
    submit: Callable[..., Job], tmp_path: Path, node: int
) -> None:
    """SIGKILL of one launcher ends the other with 75, and the job is requeued."""
    job = submit("--requeues=1", "--", "--log-dir=runs", PROGRAMS / "steps.py", tmp_path)
    job.ready(name="step")
    job.launcher(node).send_signal(signal.SIGKILL)
    job.until(lambda: job.slurm.field(job.number, "Restarts") == "1")
    (tmp_path / "finish").touch()
    assert job.end() == ("COMPLETED", "0:0"), job.output()
    assert "exit code 75; queued again: 0 of 1 times so far" in job.output()
    assert left(job) == []


def test_a_preempted_job_goes_on_later(
    submit: Callable[..., Job], slurm: Cluster, tmp_path: Path
) -> None:
    """Slurm sends SIGTERM to launchers only; the job ends at once and is requeued."""
    job = submit("--requeues=1", "--", "--log-dir=runs", PROGRAMS / "steps.py", tmp_path)
    job.ready(name="step")
    script = tmp_path / "urgent.sh"
    script.write_text(f"#!/bin/bash\nls {tmp_path}/step-0\n")
    urgent = slurm.submit("-p", "urgent", "--nodes=2", "--exclusive", "-o", "/dev/null", script)
    assert slurm.wait(urgent) == "COMPLETED"
    (tmp_path / "finish").touch()
    assert job.end() == ("COMPLETED", "0:0"), job.output()
    assert slurm.field(job.number, "Restarts") == "1"
    assert "exit code 143; queued again" in job.output()
    assert left(job) == []


def test_a_killed_daemon_ends_nothing_by_itself(
    submit: Callable[..., Job], slurm: Cluster, tmp_path: Path
) -> None:
    """Tasks continue without slurmd; a job on a node declared down is requeued."""
    job = submit("--", "--log-dir=runs", PROGRAMS / "steps.py", tmp_path)
    job.ready(name="step")
    slurm.daemons["gpu02"].kill()
    slurm.daemons["gpu02"].wait()
    before = (tmp_path / "step-1").read_text()
    job.until(lambda: (tmp_path / "step-1").read_text() != before)
    job.until(lambda: slurm.field(job.number, "Restarts") == "1")
    job.until(lambda: left(job) == [])
    assert "exit code 143" in job.output()
    (tmp_path / "finish").touch()
    slurm.start_node(slurm.nodes[1])
    assert job.end() == ("COMPLETED", "0:0"), job.output()
    assert left(job) == []


def test_a_users_own_mistake_is_not_tried_again(submit: Callable[..., Job]) -> None:
    """A job that would fail again ends with the worker's code."""
    job = submit("--requeues=3", "--", "--log-dir=runs", PROGRAMS / "fails.py", "1:exit42")
    assert job.end() == ("FAILED", "42:0"), job.output()
    assert job.slurm.field(job.number, "Restarts") == "0"


def test_munge_protects_what_srun_starts(slurm: Cluster, tmp_path: Path) -> None:
    """Launchers authenticate by their user's credentials, also several on a node.

    A stranger on a cluster node learns no word of the job.
    """
    stranger = f"{sys.executable} {PROGRAMS / 'stranger.py'} join gpu01"
    (tmp_path / "train.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path(f'began-{os.environ[\"RANK\"]}').touch()\n"
        "while not pathlib.Path('finish').exists(): time.sleep(0.02)\n"
    )
    script = tmp_path / "job.sbatch"
    for tasks in (1, 2):
        script.write_text(
            "#!/bin/bash\n"
            f"srun --ntasks-per-node={tasks} {LAUNCHER} -v --nproc=1 --require-secret"
            f" --log-dir=runs train.py > said 2>&1 &\n"
            f"until [ -e began-{2 * tasks - 1} ]; do sleep 0.1; done\n"
            f"port=$(sed -n 's/.*node 0 *gpu01:\\([0-9]*\\) .*/\\1/p' said | head -n 1)\n"
            f"echo | {stranger} $port > told; touch finish\n"
            "wait %1; code=$?; rm -f began-* finish; exit $code\n"
        )
        own = {name: text for name, text in CURRENT.environment().items() if name not in os.environ}
        path = CURRENT.environment()["PATH"]
        options = (f"--chdir={tmp_path}", "--nodes=2", f"--ntasks-per-node={tasks}")
        job = slurm.submit(*options, script, **{**own, "PATH": path})
        state = slurm.wait(job)
        said = (tmp_path / "said").read_text()
        assert state == "COMPLETED", f"{said}\n{slurm.logs()}"
        assert "aren't protected" not in said
        told = (tmp_path / "told").read_text()
        assert "safe-launch link" in told
        assert "gpu0" not in told
        wait_for(slurm.idle, slurm.logs)


@pytest.mark.parametrize("broken", ["gpu01", "gpu02"])
def test_a_node_that_cant_start_ends_the_job_at_once(
    submit: Callable[..., Job], tmp_path: Path, broken: str
) -> None:
    """Whichever node it is, the job has the documented code and isn't requeued."""
    for name in ("gpu01", "gpu02"):
        (tmp_path / name).mkdir()
        if name != broken:
            (tmp_path / name / "train.py").write_text("import time; time.sleep(600)")
    here = """bash -c 'exec "${@//HOST/$(hostname)}"' - "${training[@]}" &"""
    words = ("--requeues=3", "--", "--log-dir=runs", FOR_HOURS, tmp_path / "HOST" / "train.py")
    job = submit(*words, edits={'"${training[@]}" &': here})
    assert job.end() == ("FAILED", "64:0"), job.output()
    assert job.slurm.field(job.number, "Restarts") == "0"
    said = job.output()
    assert re.search(rf"\({broken}\) can't take part: |{broken} can't take part: ", said), said
    assert said.count("[safe-launch] error: ") == 2, said
    assert left(job) == []
