"""Messages of compiled libraries without an exception, and of MPI."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.logs import report
from support.logs import judged
from support.tables import table

OPS = "at line 216 in file /src/bitsandbytes/csrc/ops.cu"
REPORT = "E07 torch/distributed/elastic/api.py:8] failed (exitcode: 1) local_rank: 0 (pid: 9)\n"
MPI = "*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n"


@table(
    ("message", "says"),
    [
        (f"Error invalid configuration argument {OPS}", "adamw_torch_fused"),
        (f"Error invalid configuration argument {OPS}", "bitsandbytes can't be launched on a"),
        ("CUDA error (/w/flash_attn/src/fwd.h:188): invalid device function", "for this GPU"),
        ("/opt/xformers/csrc/attention.cu:77: too many resources requested", "more registers"),
        (
            "/opt/TransformerEngine/norm.cu:20: an illegal memory access",
            "--transformer-impl",
        ),
    ],
)
def test_a_compiled_librarys_message(message: str, says: str) -> None:
    """The library is known by its path, the remedy by the class of the message."""
    step = next_step(FailureRecord(0, 1.0, message=message))
    assert step.rule == "native"
    assert says in step.do


@pytest.mark.parametrize(
    "message",
    [
        "Error invalid configuration argument at line 7 in file /src/own/kernel.cu",
        "/src/bitsandbytes/csrc/ops.cu:7: the gate is shut",
        "bitsandbytes: invalid configuration argument",
    ],
)
def test_another_message(message: str) -> None:
    """Without a known library, class or place the rule doesn't apply."""
    assert next_step(FailureRecord(0, 1.0, message=message)).rule != "native"


@pytest.mark.parametrize(("size", "is_large"), [(3620732928, True), (1620732928, False)])
def test_a_tensor_of_more_elements_than_32_bits_count(size: int, is_large: bool) -> None:
    """The log's number is quoted."""
    tail = (f"Rank: 0 partition count [2, 2] and sizes[({size}, 0), (133120, 0)]",)
    message = f"Error invalid configuration argument {OPS}"
    step = next_step(FailureRecord(0, 1.0, message=message, log_tail=tail))
    assert (f"{size:,} elements" in step.do) is is_large


@table(
    ("before", "says"),
    [
        ("torchrun --nproc_per_node 8 train.py\n", "but torchrun started them"),
        ("torchrun train.py --tp-comm-overlap\n", "leave out `--tp-comm-overlap`"),
        ("import horovod.torch as hvd\n", "horovodrun"),
    ],
)
def test_mpi_that_nobody_started(before: str, says: str) -> None:
    """The launcher is named, and the setting that asks for MPI."""
    advice = dict(report.rows(judged(f"{before}{MPI}{REPORT}"), ()))
    assert "mpirun -np N" in advice["do"] + advice.get("else", "")
    assert says in advice["do"] + advice.get("else", "")


def test_the_loaders_line() -> None:
    """A process that the dynamic loader ends writes nothing else."""
    line = "python: symbol lookup error: /opt/x/libfoo.so: undefined symbol: ncclCommShrink\n"
    advice = dict(report.rows(judged(f"{line}{REPORT}"), ()))
    assert "Upgrade NCCL" in advice["do"]
