"""Everything that reads what others have written: samples of each input, and what reads it.

A target takes any bytes, and may refuse them in the way that it documents. Anything else that it
raises is a mistake, and so are more than `SECONDS` or `MEMORY`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from unittest import mock

from safe_launch.catalogue.reader import read_catalogue, read_entry
from safe_launch.checkpoints.checkpoint import STATE, Saves
from safe_launch.checkpoints.discovery import find_all
from safe_launch.cli import guarded
from safe_launch.commands.run_search import status_of
from safe_launch.core.errors import LaunchError
from safe_launch.evidence import worker_messages, worker_receiver
from safe_launch.hangs.dumps import standings
from safe_launch.logs import report
from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge
from safe_launch.machine.profiles import read_node, read_profile
from safe_launch.nodes.connection import decoded, encoded
from safe_launch.nodes.messages import Message
from safe_launch.options.hostfile import filtered, hosts_of
from safe_launch.planning.named_presets import wanted
from safe_launch.report.run_status import columns
from safe_launch.schedulers import torchrun_options
from safe_launch.schedulers.read_placement import placement_of
from safe_launch.schedulers.this_host import Here
from safe_launch.workload.config_files import accelerate, deepspeed

from support.links import MESSAGES, RECORD
from support.stacks import ROOT, TESTS

SECONDS = 20
"""Within which any input of a few kilobytes is read, on a busy machine."""
MEMORY = 1 << 30
"""Bytes that it may take beyond what the process has."""
FAILED = "safe-launch itself failed"


@dataclass(frozen=True)
class Target:
    """A reader of what others have written.

    Attributes:
        name: of the input.
        samples: inputs as they should be.
        read: reads one; what it raises beyond `refusals` is a mistake.
        refusals: how it refuses an input.
    """

    name: str
    samples: tuple[bytes, ...]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (LaunchError,)

    def consume(self, data: bytes) -> None:
        """Reads an input, within the limits."""
        with limited(), contextlib.suppress(*self.refusals):
            self.read(data)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limits time and memory of this process."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    earlier = signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _late(_number: int, _frame: object) -> None:
    raise AssertionError(f"not read within {SECONDS} s")


@functools.cache
def folder() -> Path:
    """A folder for the files that are read; it is removed with this process."""
    holder = tempfile.TemporaryDirectory(prefix="fuzz-")
    HELD.append(holder)
    return Path(holder.name)


HELD: list[tempfile.TemporaryDirectory[str]] = []


def _file(name: str, data: bytes) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


CATALOGUE = functools.cache(read_catalogue)


def _read_log(data: bytes) -> None:
    reader = Reader(CATALOGUE())
    reader.read("log", BytesIO(data))
    attempts = judge(reader.attempts, CATALOGUE())
    last = decisive(attempts)
    report.headline(last)
    report.rows(last, ())
    json.dumps(dict(report.document(last, attempts, [], ())))


def _read_hosts(data: bytes) -> None:
    text, _, choice = data.decode(errors="replace").partition("\n\n")
    found = hosts_of(text, "hostfile")
    filtered(found, choice, "")
    filtered(found, "", choice)


def _read_variables(data: bytes) -> None:
    pairs = (line.partition("=") for line in data.decode(errors="replace").splitlines())
    variables = {name: value for name, _, value in pairs}
    for is_launch in (True, False):
        with contextlib.suppress(LaunchError):
            placement_of({}, None, variables, HERE, is_launch=is_launch)
    placement_of(torchrun_options.variables(variables), None, {}, HERE, is_launch=False)


HERE = Here("n1", lambda: "n1.cluster", has_terminal=False, owns=lambda name: name == "n1")


def _read_state(data: bytes) -> None:
    _file(f"saved/checkpoint-4/{STATE}", data)
    _file("saved/checkpoint-4/model.safetensors", data)
    find_all(Saves(str(folder() / "saved"), 0, {}), [2])


def _read_run(data: bytes) -> None:
    for name in ("launcher-0.json", "outcome.json", "request.json", "attempt-1/failures.json"):
        _file(f"run/{name}", data)
    _file("run/attempt-1/progress-0.json", data)
    found = status_of(folder() / "run")
    columns(found.ranks)
    _command("status", "--json", str(folder() / "run"))
    _command("status", str(folder() / "run"))


def _read_dump(data: bytes) -> None:
    standings([_file("dump_0", data)])


def _command(*arguments: str, **variables: str) -> int:
    """Runs a command of the launcher's in this process; its code.

    Raises:
        AssertionError: it has failed by a mistake of its own.
    """
    said = io.StringIO()
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals() if number}
    try:
        with (
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(io.StringIO()),
            mock.patch.dict(os.environ, {**PLAIN, **variables}, clear=True),
            contextlib.chdir(folder()),
        ):
            code = guarded(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        for number, handler in handlers.items():
            if number not in (signal.SIGKILL, signal.SIGSTOP) and handler is not None:
                signal.signal(number, handler)
    assert FAILED not in said.getvalue(), said.getvalue()
    return code


PLAIN = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def _plan(*arguments: str, **variables: str) -> None:
    assert _command("plan", *arguments, **variables) in (0, 64, 78)


def _plan_with(option: str, name: str) -> Callable[[bytes], None]:
    """Plans a training that is given a file."""

    def read(data: bytes) -> None:
        _file("train.py", SCRIPT)
        _plan("--nproc=2", "train.py", *f"{option} {_file(name, data).name}".split())

    return read


def _plan_script(data: bytes) -> None:
    _plan("--nproc=2", _file("own.py", data).name, "--size=4")


def _plan_line(data: bytes) -> None:
    """The words of a command line, one a line."""
    _file("train.py", SCRIPT)
    words = [word for word in data.decode(errors="replace").replace("\0", "").splitlines() if word]
    if not any(word.startswith(NETWORK) for word in words):
        _plan(*words, "train.py")


def _of(path: Path, pattern: str) -> tuple[bytes, ...]:
    return tuple(found.read_bytes() for found in sorted(path.rglob(pattern))[:40:7])


NETWORK = ("-H", "--ho", "-i", "-e", "--inc", "--exc", "--num", "--la", "--no-", "--no_", "--ssh")
"""Options that might reach other hosts."""
SCRIPT = (ROOT / "examples" / "finetune.py").read_bytes()
DEEPSPEED = (TESTS / "scenarios" / "raw2.json").read_bytes()
STATE_OF_TRAINER = json.dumps(
    {"global_step": 4, "epoch": 1.0, "log_history": [{"loss": 1.5, "step": 1}], "max_steps": 8}
).encode()
LAUNCHER_RECORD = json.dumps(
    {
        "node": 0,
        "nodes": 1,
        "host": "n1",
        "pid": 1,
        "started": 1.0,
        "boot": "b",
        "exit_code": 0,
        "findings": [{"entry": None, "record": {"rank": 0, "exception": "a.B", "message": "x"}}],
    }
).encode()
DUMPS = _of(TESTS / "fixtures" / "flight-recorder", "*.json")
LOGS = sorted((TESTS / "logs").glob("real-*.log"))[::12]
SLURM = b"\n".join(
    (
        b"SLURM_JOB_ID=4711",
        b"SLURM_STEP_ID=0",
        b"SLURM_NNODES=2",
        b"SLURM_NTASKS=2",
        b"SLURM_NODEID=1",
        b"SLURM_PROCID=1",
        b"SLURM_LOCALID=0",
        b"SLURM_STEP_NODELIST=n[1-2],gpu-a[01-02]-x",
        b"SLURM_STEP_TASKS_PER_NODE=1(x2)",
        b"SLURM_TASKS_PER_NODE=1(x2)",
        b"SLURM_GPUS_ON_NODE=8",
        b"SLURM_GPUS_PER_TASK=a100:4",
        b"SLURM_RESTART_COUNT=0",
        b"SLURM_TASK_PID=1",
    )
)
TORCHRUN = b"\n".join(
    (
        b"PET_NNODES=1:2",
        b"PET_NODE_RANK=1",
        b"PET_NPROC_PER_NODE=2",
        b"PET_MASTER_ADDR=n1",
        b"PET_MASTER_PORT=29500",
        b"PET_RDZV_ENDPOINT=[fd00::1]:29400",
        b"PET_RDZV_ID=tune",
        b"PET_RDZV_BACKEND=c10d",
        b"PET_RDZV_CONF=join_timeout=600,last_call_timeout=30,is_host=1",
    )
)
OTHERS = b"OMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_RANK=1\nMASTER_ADDR=n1\nJOB_COMPLETION_INDEX=1"
VOLCANO = b"VC_WORKER_HOSTS=a,b\nVC_TASK_INDEX=1\nWORLD_SIZE=2\nRANK=1\nPET_NNODES=2"
LINE = b"--nproc=2\n--set=zero_stage=2\n--rdzv-conf=a=1\n--tee=0:3\n--node-timeout=3\n--fix=once"


TARGETS = (
    Target(
        "messages of links",
        tuple(map(encoded, MESSAGES)),
        lambda data: decoded(data, Message),
        (ValueError,),
    ),
    Target(
        "messages of workers",
        (
            worker_messages.encoded(1, worker_messages.Failure(RECORD)),
            worker_messages.encoded(1, worker_messages.Observed({"zero_stage": 2}, 3)),
            worker_messages.encoded(1, worker_messages.SaveLocation(Saves("out", 1, {"a": 3}))),
        ),
        worker_receiver.decoded,
        (),
    ),
    Target("logs", tuple(path.read_bytes()[-6000:] for path in LOGS), _read_log, ()),
    Target("dumps", DUMPS, _read_dump, ()),
    Target("hostfiles", (b"a slots=2\n# b\nc slots=8 x\n\na:0",), _read_hosts),
    Target("variables", (SLURM, TORCHRUN, OTHERS, VOLCANO), _read_variables),
    Target(
        "presets",
        _of(ROOT / "presets", "zero*.yaml"),
        lambda data: wanted(str(_file("preset.yaml", data)), ()),
    ),
    Target(
        "devices",
        _of(ROOT / "hardware" / "accelerators", "*.yaml"),
        lambda data: read_profile(_file("device.yaml", data)),
    ),
    Target(
        "nodes",
        _of(ROOT / "hardware" / "nodes", "*.yaml"),
        lambda data: read_node(_file("node.yaml", data)),
    ),
    Target(
        "known failures",
        tuple(
            re.sub(rb"\nid: .*", b"\nid: entry", entry)
            for entry in _of(ROOT / "presets" / "failures", "*.md")
        ),
        lambda data: read_entry(_file("entry.md", data)),
    ),
    Target(
        "DeepSpeed's configurations",
        (DEEPSPEED,),
        lambda data: deepspeed.load(_file("ds.json", data)),
        (deepspeed.ConfigError,),
    ),
    Target(
        "accelerate's configurations",
        (b"distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n",),
        lambda data: accelerate.read(_file("accelerate.yaml", data)),
    ),
    Target("checkpoints", (STATE_OF_TRAINER,), _read_state, ()),
    Target("run directories", (LAUNCHER_RECORD,), _read_run, ()),
    Target(
        "plans with DeepSpeed",
        (DEEPSPEED,),
        _plan_with("--output_dir=out --deepspeed", "plan.json"),
        (),
    ),
    Target(
        "plans with arguments in YAML",
        (b"output_dir: out\nper_device_train_batch_size: 4\nbf16: true\nlearning_rate: 1e-4\n",),
        _plan_with("", "plan.yaml"),
        (),
    ),
    Target(
        "plans with arguments in JSON",
        (b'{"output_dir": "out", "per_device_train_batch_size": 4, "bf16": true}',),
        _plan_with("", "arguments.json"),
        (),
    ),
    Target("scripts", (SCRIPT, *_of(TESTS / "scenarios", "*.py")), _plan_script, ()),
    Target("command lines", (LINE,), _plan_line, ()),
)
"""All of them."""
