"""Inputs as they should be."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from io import BytesIO
from pathlib import Path

from safe_launch.nodes.secret import Kind, Trust
from safe_launch.nodes.secure_channel import MAGIC, hosting, joining

from support.stacks import ROOT, TESTS


def of(path: Path, pattern: str) -> tuple[bytes, ...]:
    """Some of the files below a folder."""
    return tuple(found.read_bytes() for found in sorted(path.rglob(pattern))[:40:7])


SECRET = Trust(Kind.SECRET, b"0123456789abcdef")
HELLO = next(joining(SECRET))[0]


def _answer(hello: bytes) -> bytes:
    side = hosting(SECRET)
    next(side)
    side.send(hello[: len(MAGIC)])
    return side.send(hello[len(MAGIC) :])[0]


ANSWER = _answer(HELLO)


SCRIPT = (ROOT / "examples" / "finetune.py").read_bytes()
DEEPSPEED = (TESTS / "scenarios" / "raw2.json").read_bytes()
STATE_OF_TRAINER = json.dumps(
    {"global_step": 4, "epoch": 1.0, "log_history": [{"loss": 1.5, "step": 1}], "max_steps": 8}
).encode()
INDEX = b'{"weight_map": {"a": "model.safetensors"}}'
HEADER = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
TENSORS = struct.pack("<Q", len(HEADER)) + HEADER + bytes(4)


def _archive(content: object) -> bytes:
    """What `torch.save` makes of numbers and texts."""
    with zipfile.ZipFile(whole := BytesIO(), "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
    return whole.getvalue()


ARCHIVE = _archive({"dp_world_size": 1, "zero_stage": 2})
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
DUMPS = of(TESTS / "fixtures" / "flight-recorder", "*.json")
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
VARIABLES = (SLURM, TORCHRUN, OTHERS, VOLCANO)
PARTS = (STATE_OF_TRAINER, TENSORS, INDEX, ARCHIVE, b"global_step4")
SCRIPTS = (SCRIPT, *of(TESTS / "scenarios", "*.py"))
