"""Errors before a wait, a stop or a mute exception, and addresses that nodes don't share."""

from __future__ import annotations

import pytest
from safe_launch.logs import report
from safe_launch.logs.headline import headline
from safe_launch.logs.judgement import Judgement, Verdict
from safe_launch.logs.plain import restored
from support.logs import STEPS, entry_of, judged
from support.tables import table

WATCHDOG = (
    "[rank2]:[E303 10:30:01.118 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
    " Timeout(ms)=1800000) ran for 1800009 milliseconds before timing out.\n"
)
LOGGED = "[ERROR] [gates.py:7:open] gave up: KeeperError: the gate of shard 12 is locked\n"
UPLOAD = (
    "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject"
    " operation: slow down\n"
)
MEETS = """\
Traceback (most recent call last):
  File "/opt/t/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/\
dynamic_rendezvous.py", line 680, in run
    raise RendezvousTimeoutError()
torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError
"""
SOCKET = (
    "[E socket.cpp:922] [c10d] The client socket has timed out after 900s while trying to connect"
    " to "
)
MESH = (
    "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] timed out"
    " connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:14215\n"
)
DAEMON = "docker: Error response from daemon:"
SPEAKS = "/usr/bin/python3: No module named rl\n"


def first_lines(judgement: Judgement) -> str:
    """The answer's first three lines."""
    rows = [f"{name} {text}" for name, text in report.rows(judgement, ())]
    return "\n".join([headline(judgement), *rows[:2]])


@table(
    ("log", "says"),
    [
        (f"+ torchrun --nnodes=3 --rdzv-endpoint=localhost:15213 train.py\n{MEETS}", "hostname -I"),
        (f"  min_nodes        : 2\n  rdzv_endpoint    : 127.0.1.1:29400\n{MEETS}", "127.0.1.1"),
        (f"two nodes, MASTER_ADDR=127.0.0.1\n{SOCKET}(127.0.0.1, 29400).\n", "MASTER_ADDR"),
        (f"{SOCKET}(172.17.0.2, 44737).\n", "--network=host"),
        (f"rank=8, local_rank=0 starts\n{MESH}", "GLOO_SOCKET_IFNAME"),
        (f"{SOCKET}(172.17.0.2, 44737).\n{WATCHDOG}", "172.17.0.2"),
    ],
)
def test_an_address_that_each_node_has(log: str, says: str) -> None:
    """With several nodes, or docker's own network, the address is what fails."""
    assert says in first_lines(judged(log))
    assert judged(log).root is not None


@table(
    "log",
    [
        f"+ torchrun --nnodes=1 --rdzv-endpoint=localhost:15213 train.py\n{MEETS}",
        f"+ torchrun --nnodes=3 --rdzv-endpoint=node1:15213 train.py\n{MEETS}",
        f"on 2 nodes, master_addr=localhost at first\n{SOCKET}(10.0.0.3, 29400).\n",
        MESH,
    ],
)
def test_an_address_that_may_be_right(log: str) -> None:
    """On one node, or if another address failed, nothing is wrong with a local one."""
    text = first_lines(judged(log))
    assert "is each node's own" not in text
    assert "is every node's own" not in text


@table(
    ("before", "says"),
    [
        (LOGGED, "the gate of shard 12 is locked"),
        (f"{UPLOAD}saved what could be saved\n", "AWS_RETRY_MODE"),
    ],
)
def test_an_error_before_a_rank_waited(before: str, says: str) -> None:
    """It is quoted with its own advice, before the advice on waiting."""
    judgement = judged(f"step 1 loss 2\n{before}step 2 loss 2\n{WATCHDOG}")
    assert entry_of(judgement) == "nccl-collective-timeout"
    assert "Fix the earlier error in the log first" in first_lines(judgement)
    assert says in first_lines(judgement)


@pytest.mark.parametrize("before", ["", f"{LOGGED}{STEPS}", "WARNING gates.py: slow\n"])
def test_no_error_before_a_rank_waited(before: str) -> None:
    """What the training survived, or what is only a warning, isn't the reason."""
    assert "Fix the earlier error" not in first_lines(judged(f"{before}{WATCHDOG}"))


def test_a_heading_of_the_same_error() -> None:
    """What a logger writes above a traceback is no earlier error."""
    traced = '  File "/usr/lib/python3/dist-packages/vllm/a.py", line 3, in f\n    g()\n'
    log = f"ERROR 08-14 [worker.py:301] Error executing method 'start'.\n{traced}{MESH}"
    assert "Fix the earlier error" not in first_lines(judged(log))


STOP = "Stopping training due to possible overtraining. Lowest loss: 8.96 at epoch 54\n"


def test_a_rank_that_has_stopped_early() -> None:
    """The others waited for it; steps after such a line, or a setting, show nothing."""
    text = first_lines(judged(f"step 1 loss 2\n{STOP}{WATCHDOG}"))
    assert "Stop all ranks in the same step" in text
    assert "“Stopping training due to possible overtraining" in text
    for before in (f"{STOP}{STEPS}", "early_stopping=True\nearly stopping: off\n"):
        assert "Stop all ranks" not in first_lines(judged(f"step 1 loss 2\n{before}{WATCHDOG}"))


def test_the_line_before_a_mute_exception() -> None:
    """A status code as the whole message says less than the line before it."""
    raised = 'Traceback (most recent call last):\n  File "/w/a.py", line 3, in f\n    x()\n'
    log = f"Keeper Error: gates.db: database is locked\n{raised}RuntimeError: keeperStatusBusy\n"
    text = first_lines(judged(log))
    assert "gates.db" in text
    assert "local disk" in text


@table(
    ("log", "says"),
    [
        ("srun: unrecognized option '--container-name'\nTry \"srun --help\"\nnode7\n", "pyxis"),
        ('mpirun: Error: unknown option "--hostfil"\nType mpirun --help\n', "`mpirun --help`"),
        ("unknown flag: --gpu\n\nUsage:  docker run [OPTIONS] IMAGE\n", "--gpu"),
        ("sbatch: error: Batch job submission failed: Invalid qos\nuser@login\n", "sinfo"),
        (f"{DAEMON} could not select device driver with capabilities: [[gpu]].\n", "nvidia-ctk"),
        ("Warning FailedScheduling 0/2 nodes are available: 2 too small.\n", "kubectl describe"),
        ("slurmstepd: error: pyxis: failed to import the image\n", "enroot"),
        ("ERROR: No matching distribution found for gate==9\n", "pip index versions gate"),
        ("Host key verification failed.\n", "ssh-copy-id"),
        ("There are not enough slots available in the system\nfor 16\n", "slots=8"),
        ("run.sh: line 9: syntax error: unexpected end of file\n", "line 9"),
    ],
)
def test_a_program_that_refuses_its_command_line(log: str, says: str) -> None:
    """It is a failure, also with lines after it."""
    judgement = judged(log)
    assert judgement.verdict is Verdict.UNKNOWN
    assert says in first_lines(judgement)
    assert judged(f"{log}{STEPS}").verdict is Verdict.UNFINISHED


@table(
    ("log", "says"),
    [
        (
            "TRL CLI: error: argument command: invalid choice: 'a' (choose from 'dpo')\n",
            "-U TRL",
        ),
        ("Gate CLI tool: error: invalid choice: 'shut' (choose from 'open')\n", "-U Gate`"),
        (
            "usage: g\ngate-cli: error: argument {a,b}: invalid choice: 'c' (choose from a, b)",
            "-U g",
        ),
        ("gate: error: argument --by: invalid choice: 'c' (choose from 'a', 'b')\n", "one of 'a'"),
        (
            "t.py: error: argument command: invalid choice: 'c' (choose from 'a', 'b')\n",
            "Change the",
        ),
        ("gate open: error: unrecognized arguments: --wide\nCan I leave it out?\n", "--wide"),
        ("gate: error: the following arguments are required: --by\n", "Give --by"),
        ("ERROR: Could not consume arg: --wide\nUsage: g.py A <flags>\n  flags: --by\n", "Fire"),
    ],
)
def test_a_program_that_refuses_its_arguments(log: str, says: str) -> None:
    """It is a failure with its usage or a person's words after it, but not with other lines."""
    judgement = judged(log)
    assert judgement.verdict in (Verdict.UNKNOWN, Verdict.KNOWN)
    assert says in first_lines(judgement)
    if ".py" not in log:
        assert judged(f"{log}\nopening the gate\n").verdict is Verdict.UNFINISHED


CANCELLED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-27T12:02:20 ***\n"


@table(
    ("refusal", "says"),
    [
        ("n2: Permission denied (publickey,password).\n", "over ssh without a password"),
        ("Host key verification failed.\n", "`srun`"),
        ("run.sh: line 3: torchrun: command not found\n", "python -m torch.distributed.run"),
    ],
)
def test_a_refusal_before_somebody_stopped_the_job(refusal: str, says: str) -> None:
    """What never began was stopped because of that; a training may have had another reason."""
    assert says in first_lines(judged(f"{refusal}{CANCELLED}"))
    assert entry_of(judged(f"{refusal}{STEPS}{CANCELLED}")) == "stopped-from-outside"


def test_rays_exceptions_report_others() -> None:
    """The earlier failure is the root, whatever Ray's exception is called."""
    log = f"rank=9, local_rank=1\n{MESH}ray.exceptions.KeeperLostError: handle of another job\n"
    assert entry_of(judged(log)) == "gloo-mesh-not-connected"


def test_a_request_that_ray_never_fulfills() -> None:
    """The stop comes of it."""
    log = (
        "(autoscaler +1m) Error: No available node types can fulfill resource request {'CPU':"
        f" 96.0, 'GPU': 8.0}}. Add suitable node types.\n{CANCELLED}"
    )
    assert entry_of(judged(log)) == "ray-too-few-gpus"
    assert "96 CPUs and 8 GPUs" in first_lines(judged(log))


@table(
    ("launcher", "is_other"),
    [
        ("+ /opt/e/bin/torchrun -m rl\n", True),
        ("+ /usr/local/bin/torchrun -m rl\n", False),
        ("+ torchrun -m rl\n", False),
    ],
)
def test_the_interpreter_of_another_environment(launcher: str, is_other: bool) -> None:
    """The launcher's environment belongs first on PATH."""
    text = first_lines(judged(f"{launcher}{SPEAKS}"))
    assert ("PATH=/opt/e/bin:$PATH" in text) == is_other
    assert "No module named rl" in text


def test_labelled_lines_of_equal_width_are_whole() -> None:
    """A label begins a line, so that a line before it wasn't wrapped."""
    log = "".join(f"{rank}: {'x' * 90}\n" for rank in range(5)).encode()
    assert restored(log) == (log,)
