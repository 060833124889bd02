"""The reason that a program or a child logged before an exception that explains nothing."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.logs.headline import headline
from support.logs import judged
from support.tables import table

SHARDS = (
    "15:18:27 | ERROR | Fewer shards than readers were found. To go on, consider splitting the"
    " data anew, or use fewer readers."
)
SBATCH = "Command '['sbatch', '--parsable', '/tmp/job.sh']' returned non-zero exit status 1."


@table(
    ("kind", "message", "before", "says"),
    [
        (
            *("IndexError", "list index out of range", (SHARDS,)),
            "just before advises: “To go on, consider splitting the data anew, or use fewer",
        ),
        ("KeyError", "'shard'", (SHARDS, "closing"), "“Fewer shards than readers were found.”"),
        ("StopIteration", "", ("[ERROR] x.py:3 - the queue is gone",), "“the queue is gone”"),
        (
            *("subprocess.CalledProcessError", SBATCH),
            ("sbatch: error: Memory specification can not be satisfied", "sbatch: error: Ba"),
            "less memory (`--mem`",
        ),
        (
            *("subprocess.CalledProcessError", "Command '['/opt/bin/kube', 'x']' returned 3"),
            ("kube: error: the lease of node 3 is over",),
            "Mend what `kube` reports: “kube: error: the lease",
        ),
    ],
)
def test_what_was_logged(kind: str, message: str, before: tuple[str, ...], says: str) -> None:
    """The error's instruction or words come first."""
    step = next_step(FailureRecord(0, 1.0, kind, message, log_tail=before))
    assert step.rule == "logged-reason"
    assert says in step.do


@table(
    ("kind", "message", "before"),
    [
        ("IndexError", "list index out of range", ("WARNING: x is old, please use y instead",)),
        ("IndexError", "list index out of range", (SHARDS, "step 3 loss 2.1")),
        ("IndexError", "list index out of range", (SHARDS, *("reads a shard",) * 9)),
        ("IndexError", "list index out of range", ("[ERROR] failed (exitcode: 1) local_rank: 0",)),
        ("KeyError", "'k'", ("ERROR: the training has failed on node 3",)),
        ("ZeroDivisionError", "division by zero", ("ERROR 2",)),
        ("ZeroDivisionError", "division by zero", ("ERROR of the second run",)),
        ("IndexError", "list index out of range", ("12:00:01 ERROR: 17",)),
        ("KeyError", "'k'", ("wandb: ERROR Error while calling the API",)),
        ("ValueError", "the batch is empty: 0 rows", (SHARDS,)),
        ("subprocess.CalledProcessError", SBATCH, ("srun: error: n12: task 3: Exited",)),
    ],
)
def test_what_explains_nothing(kind: str, message: str, before: tuple[str, ...]) -> None:
    """Warnings, errors long before or survived, ends of workers, other programs."""
    assert next_step(FailureRecord(0, 1.0, kind, message, log_tail=before)).rule != "logged-reason"


OUTSIDE = "srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x03.\n"


@pytest.mark.parametrize("end", ["", "srun: error: n40: task 0: Exited with exit code 1\n"])
def test_the_first_refusal_of_slurm(end: str) -> None:
    """It comes before the step's abort, whatever srun reports in the end."""
    launch = "srun: error: Application launch failed: Unable to satisfy cpu bind request\n"
    judgement = judged(f"{OUTSIDE}{launch}srun: Job step aborted\n{end}")
    assert "CPU binding outside" in headline(judgement)


def test_what_a_job_script_asks_for() -> None:
    """Slurm's refusal names the requests, as one of them is refused."""
    message = "sbatch: error: Batch job submission failed: Requested node configuration is not"
    asks = ("#SBATCH --job-name=x", "#SBATCH --gpus-per-node=4", "#SBATCH --cpus-per-gpu 9")
    step = next_step(FailureRecord(None, 1.0, message=message, log_tail=asks))
    assert "asks for `--gpus-per-node=4 --cpus-per-gpu 9`" in step.do
