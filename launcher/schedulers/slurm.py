"""Slurm: variables of `srun`'s tasks (srun(1), OUTPUT ENVIRONMENT VARIABLES; as of 22.05)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ..core.errors import LaunchError
from ..core.quantities import count_of
from ..system import regular_files
from .reported import Reported, Stated, number
from .this_host import Here

NO_TASKS = 4_294_967_290
"""First step number that isn't srun's: interactive, batch, external (slurm.h)."""
FIRST_PORT, PORTS = 16_384, 16_384
"""Ports below Linux's ephemeral ones, which start at 32768."""
PORTS_OF_A_JOB = 16
"""Number of a job's steps with different ports, distinct from the next jobs'."""
AGREE = (("SLURM_NNODES", "SLURM_STEP_NUM_NODES"), ("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"))
NODELISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
HOSTS = 65_536
"""Maximum hosts of a list, Slurm's maximum per range (MAX_RANGE of src/common/hostlist.h)."""
BRACKETS = 16
"""Maximum brackets in a host's name; Slurm uses one or two."""
NO_DEVICES = frozenset(
    {"cpu", "mem", "node", "billing", "energy", "pages", "vmem", "fs", "bb", "license"}
    | {"shard", "mps", "nic", "tmpdisk"}
)
"""Resources that aren't accelerators (slurm.conf(5): AccountingStorageTRES, GresTypes)."""


def read(environment: Mapping[str, str], here: Here) -> Reported | None:
    """The step of this task; in a shell or a batch script, only the devices of this node.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    if number(environment, "SLURM_JOB_ID") is None:
        return None
    if (number(environment, "SLURM_HET_SIZE") or 1) > 1:
        problem = "a heterogeneous Slurm job (SLURM_HET_SIZE) numbers the nodes of each part from 0"
        hint = "give --nnodes, --node-rank and --master-addr, or --standalone for this node alone"
        return Reported(by="Slurm", refusal=LaunchError(problem, hint))
    if not is_task(environment, here):
        return _shell(environment)
    try:
        return _task(environment)
    except ValueError as error:
        raise LaunchError.because(error, "Slurm's environment can't be read") from error


def is_task(environment: Mapping[str, str], here: Here) -> bool:
    """Whether srun has started this launcher.

    A batch script has no step, but may inherit variables of a step in which `sbatch` was called:
    they are a task's only if they agree with the job's own. A shell of `srun --pty` is a task for a
    person.
    """
    step = number(environment, "SLURM_STEP_ID")
    if step is None or step >= NO_TASKS or "SLURM_PROCID" not in environment:
        return False
    if "SLURM_PTY_PORT" in environment and here.has_terminal:
        return False
    return all(
        environment.get(job) == environment[name] for job, name in AGREE if name in environment
    )


def _task(environment: Mapping[str, str]) -> Reported:
    nodes = number(environment, "SLURM_NNODES", 1) or 1
    tasks = number(environment, "SLURM_NTASKS", 1) or nodes
    task = number(environment, "SLURM_PROCID") or 0
    node = number(environment, "SLURM_NODEID") or 0
    job, step = environment["SLURM_JOB_ID"], environment["SLURM_STEP_ID"]
    restart = environment.get("SLURM_RESTART_COUNT") or "0"
    listed = next((name for name in NODELISTS if environment.get(name)), "")
    names = tuple(hosts(environment[listed])) if listed else ()
    several = tasks > nodes
    job_id, job_from = f"{job}.{step}", "SLURM_JOB_ID, SLURM_STEP_ID"
    if restart != "0":
        job_id, job_from = f"{job_id}.{restart}", f"{job_from}, SLURM_RESTART_COUNT"
    return Reported(
        by="Slurm",
        nodes=Stated((tasks, tasks), "SLURM_NTASKS" if several else "SLURM_NNODES"),
        rank=Stated(task, "SLURM_PROCID") if several else Stated(node, "SLURM_NODEID"),
        address=Stated(names[0], listed) if names else None,
        port=Stated(port_of(int(job), int(step)), "from SLURM_JOB_ID and SLURM_STEP_ID"),
        hosts=() if several else names,
        job=Stated(job_id, job_from),
        local=number(environment, "SLURM_LOCALID") or 0,
        beside=_beside(environment, node) if several else 1,
        nproc=_workers(environment, several=several),
        has_tasks=several,
    )


def _shell(environment: Mapping[str, str]) -> Reported:
    """A batch script's own step, or a shell: one launcher for any number of nodes."""
    nodes = number(environment, "SLURM_NNODES") or 1
    refusal = None
    if nodes > 1:
        refusal = LaunchError(
            f"the job has {count_of(nodes, 'node')} (SLURM_NNODES), but only one launcher was "
            "started",
            "start it with srun, once a node: srun --ntasks-per-node=1 safe-launch ...; "
            "or give --standalone to train on this node alone",
        )
    return Reported(
        by="Slurm",
        nodes=Stated((nodes, nodes), "SLURM_NNODES"),
        rank=Stated(0, "the batch script's node"),
        nproc=_workers(environment, several=False),
        refusal=refusal,
    )


def _beside(environment: Mapping[str, str], node: int) -> int:
    """The number of tasks on this node."""
    names = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    listed = next((environment[name] for name in names if name in environment), None)
    return (None if listed is None else tasks_on(listed, node)) or 1


def _workers(environment: Mapping[str, str], *, several: bool) -> Stated[int] | None:
    """The number of workers: one per device of the task or the node.

    With several tasks per node, each has one worker, unless it has several devices.
    """
    for name in ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURMD_TRES_BIND"):
        text = environment.get(name, "")
        if name == "SLURMD_TRES_BIND" and not text.startswith("gpu:per_task:"):
            continue
        if several and (count := devices(text)):
            return Stated(count, name)
    if several:
        return Stated(1, "one task for each worker: SLURM_NTASKS, SLURM_NNODES")
    if count := number(environment, "SLURM_GPUS_ON_NODE"):
        return Stated(count, "SLURM_GPUS_ON_NODE")
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        if listed := environment.get(name):
            return Stated(len(listed.split(",")), name)
    for name in ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"):
        if count := devices(environment.get(name, "")):
            return Stated(count, name)
    return None


def port_of(job: int, step: int) -> int:
    """A port that differs between steps of a job and between neighbouring jobs."""
    return FIRST_PORT + (job * PORTS_OF_A_JOB + step) % PORTS


def hosts(text: str) -> Iterator[str]:
    """The hosts of a list such as `n[1-3,07-10],gpu-a[01-02]-x`, in order.

    Numbers keep the digits of their range's start. With several brackets in a name, the last varies
    first.

    Raises:
        ValueError: a bracket isn't closed, a range is invalid, or there are more than `HOSTS`.
    """
    count = 0
    for part in _parts(text):
        if part.count("[") > BRACKETS:
            raise ValueError(f"{part[:60]!r} has more than {BRACKETS} brackets")
        for host in _expanded(part):
            if count == HOSTS:
                raise ValueError(f"it names more than {HOSTS:,} hosts")
            count += 1
            yield host


def _parts(text: str) -> Iterator[str]:
    """The list, split at commas outside brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"the brackets of {text!r} don't match")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"the brackets of {text!r} don't match")
    yield text[start:]


def _expanded(part: str) -> Iterator[str]:
    """The hosts of a part."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        if part.strip():
            yield part.strip()
        return
    inside, _, tail = rest.partition("]")
    for piece in inside.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", piece)
        if match is None:
            raise ValueError(f"{piece!r} in {part!r} is neither a number nor a range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"the range {piece!r} in {part!r} goes backwards")
        for value in range(int(first), int(last) + 1):
            for end in _expanded(tail) if tail else ("",):
                yield f"{head.strip()}{value:0{len(first)}d}{end}"


def tasks_on(text: str, node: int) -> int | None:
    """The tasks of a node by a list such as `2(x3),1`; None if it is shorter.

    Raises:
        ValueError: the text has another form.
    """
    first = 0
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\(x(\d+)\))?\s*", part)
        if match is None:
            raise ValueError(f"{part!r} isn't a number of tasks")
        first += int(match[2] or 1)
        if node < first:
            return int(match[1])
    return None


def devices(text: str) -> int | None:
    """The number of devices in a request: `4`, `a100:4`, `gpu:a100:2,gpu:v100:1`, `gres/npu:8`.

    None without devices: `cpu=4`, `shard:2`.
    """
    total, seen = 0, False
    for part in text.split(","):
        match = re.fullmatch(r"(?:(.*?)[:=])?(\d+)(?:\([^)]*\))?", part.strip())
        if match is None:
            continue
        name = (match[1] or "").lower().removeprefix("gres/").partition(":")[0]
        if name in NO_DEVICES:
            continue
        total, seen = total + int(match[2]), True
    return total if seen else None


def munge_socket(environment: Mapping[str, str]) -> str:
    """The socket of this host's munged from slurm.conf's AuthInfo; empty for the default."""
    path = Path(environment.get("SLURM_CONF") or "/etc/slurm/slurm.conf")
    with suppress(OSError):
        match = re.search(
            r"^\s*AuthInfo\s*=\s*(?:[^#\n]*,)?\s*socket=([^\s,#]+)",
            regular_files.read(path).decode(errors="replace"),
            re.IGNORECASE | re.MULTILINE,
        )
        return match[1] if match else ""
    return ""
