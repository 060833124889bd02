"""Advice for failures without an entry: the matching rule and its text."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.diagnosis.next_step.step import Step
from safe_launch.evidence.failure_record import FailureRecord, Frame
from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge
from support.tables import read_yaml, table

CASES = read_yaml(Path(__file__).parent / "next_steps.yaml")


def step_of(log: str) -> Step:
    """The next step for a log without a catalogue entry."""
    reader = Reader(())
    reader.read("a.log", BytesIO(log.encode()))
    root = decisive(judge(reader.attempts, ())).root
    assert root is not None
    return next_step(root.finding.record)


@table("case", CASES, name=lambda case: str(case["source"]))
def test_what_a_failure_of_a_thread_is_told(case: dict[str, Any]) -> None:
    """The advice has the log's values and nothing about other devices or loops."""
    step = step_of(case["log"])
    assert step.rule == case["rule"]
    for text in case["says"]:
        assert text in step.do
    for text in case.get("never", ()):
        assert text.lower() not in step.do.lower()


@pytest.mark.parametrize(("check", "is_compared"), [("args.fused", False), ("args.n > 1", True)])
def test_a_check_that_compares_nothing(check: str, *, is_compared: bool) -> None:
    """Only a comparison has another side that one may change."""
    raised = (
        f'  File "/env/lib/python3.11/site-packages/trl/a.py", line 9, in f\n    assert {check}\n'
    )
    step = step_of(f"Traceback (most recent call last):\n{raised}AssertionError\n")
    assert step.rule == "bare-assertion"
    assert ("or what it is compared with" in step.do) is is_compared


WAITED = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=24) ran for 600021 ms"
)


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (["INFO: Saving checkpoint. This may take some time."], "a rank was saving (“INFO: Sav"),
        (["rank0 | eval [28/30] wine", "step 9 | eval loss 0.2"], "evaluating (“rank0 | eval [28"),
        (["INFO rank 2: data list exhausted after 11 batches"], "the same number of batches"),
        (["Saving the cache", "Running tokenizer on dataset: 41%"], "(“Running tokenizer on"),
        (["train: Scanning /mnt/labels... 90%"], "by one process"),
        (["> compiling and loading fused kernels ..."], "megatron/fused_kernels/build"),
        (["Using /u/.cache as PyTorch extensions root..."], "Delete the file `lock` below"),
        (["Loading extension module fused_adam...", "Saving a thing"], "a rank was saving"),
        ([f"Saving to {'x' * 60} hf_{'a1B2' * 9}"], "***”) while"),
    ],
)
def test_what_a_rank_was_busy_with(before: list[str], says: str) -> None:
    """The last lines before the timeout, without later lines and training output."""
    record = FailureRecord(1, 1.0, message=WAITED, log_tail=(*before, WAITED, "Saving traces"))
    step = next_step(record)
    assert (step.rule, says in step.do) == ("busy-rank", True)
    for other in (replace(record, log_tail=(WAITED, *before)), replace(record, message="died")):
        assert next_step(other).rule != "busy-rank"


PORT = (
    "torch.distributed.DistNetworkError: port: 29500, EADDRINUSE, message: address already in use"
)
STARTED = (
    "[2026-03-21 15:02:{}] [INFO] [runner.py:550:main] cmd = python -m deepspeed.launcher.launch"
)


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        (["srun --ntasks-per-node=8 --gpus=8 torchrun --nproc-per-node=8 train.py"], True),
        ([STARTED.format("11,602"), STARTED.format("11,611")], True),
        (["srun --ntasks-per-node=1 torchrun --nproc-per-node=8 train.py"], False),
        (["srun --ntasks-per-node=8 python train.py"], False),
        ([STARTED.format("11,602"), STARTED.format("53,100")], False),
        ([], False),
    ],
)
def test_several_launchers_on_a_node(lines: list[str], *, is_told: bool) -> None:
    """Each task starts one, or the same command comes twice in a second."""
    kind, _, message = PORT.partition(": ")
    step = next_step(FailureRecord(0, 1.0, kind, message, log_tail=tuple(lines)))
    assert (step.rule == "many-launchers") is is_told


NO_GPU = "No CUDA GPUs are available"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["12:os.environ[\"CUDA_VISIBLE_DEVICES\"]='1'"], "=1, which the script sets itself"),
        (["Failed to initialize NVML: Unknown Error"], "Start the container anew"),
        (
            ["srun --container-image=x", "ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=4,5"],
            "`unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES`",
        ),
        (
            ["srun --container-image=x", "ROCR_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=0,1"],
            "Set HIP_VISIBLE_DEVICES alone",
        ),
        (["ROCR_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=4,5"], "Set HIP_VISIBLE_DEVICES alone"),
    ],
)
def test_what_hides_the_devices(lines: list[str], says: str) -> None:
    """What the script, the container or its mask took away."""
    step = next_step(FailureRecord(0, 1.0, "RuntimeError", NO_GPU, log_tail=tuple(lines)))
    assert says in step.do


HEADER = "Ultralytics YOLOv8.0.164 torch-2.0.1+cu117 CUDA:0 (NVIDIA GeForce RTX 3090, 24268MiB)"


@pytest.mark.parametrize(
    ("lines", "is_one"),
    [
        ([HEADER, "engine/trainer: task=detect, device=[0, 1], batch=128"], True),
        ([HEADER, "    CUDA:1 (NVIDIA GeForce RTX 3090)", "train: device=[0, 1]"], False),
        ([HEADER, "engine/trainer: task=detect, device=0, batch=128"], False),
        (["engine/trainer: task=detect, device=[0, 1], batch=128"], False),
    ],
)
def test_one_device_of_several(lines: list[str], *, is_one: bool) -> None:
    """The header lists fewer than the arguments."""
    record = FailureRecord(0, 1.0, "OutOfMemoryError", "CUDA out of memory.", log_tail=tuple(lines))
    assert (next_step(record).rule == "one-device") is is_one


USAGE = (
    "usage: torchrun [-h] [--nnodes NNODES] [--nproc_per_node NPROC]",
    "    [--role ROLE] [--local_rank LOCAL_RANK]",
)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--nproc-per-node=1", "Write `--nproc_per_node` instead of `--nproc-per-node`"),
        ("--rolle x", "Write `--role` instead of `--rolle`"),
        ("--tee 3", "Correct --tee 3"),
        (
            "--local-rank=0",
            "the launcher passes `--local-rank`, and the script knows `--local_rank`",
        ),
    ],
)
def test_an_option_that_the_usage_spells_otherwise(option: str, says: str) -> None:
    """By dashes or one letter."""
    message = f"torchrun: error: unrecognized arguments: {option}"
    assert says in next_step(FailureRecord(None, 1.0, message=message, log_tail=USAGE)).do


@pytest.mark.parametrize(
    ("kind", "message", "says"),
    [
        (
            *("ValueError", "You restored with current_epoch=50, but you have max_epochs=30."),
            "Raise `max_epochs` above 50, which is `current_epoch`.",
        ),
        (
            *(
                "ValueError",
                "Please use a known name. More details can be found at https://x.io/a#b",
            ),
            "More details can be found at https://x.io/a#b",
        ),
        (
            *("KeyError", "'ResNet is not in the model registry. Please check it.'"),
            "Import the module that registers `ResNet`",
        ),
        (
            *(
                "NotImplementedError",
                "Could not run 'x'. If you are a Facebook employee, please go",
            ),
            "Search for NotImplementedError",
        ),
    ],
)
def test_what_counts_as_advice(kind: str, message: str, says: str) -> None:
    """A limit that is too low, a link; not a hint for torch's developers."""
    assert says in next_step(FailureRecord(0, 1.0, kind, message)).do


@table(
    ("shapes", "says"),
    [
        ("512x4096 and 1x8388608", "packed to 4 bits"),
        ("512x4096 and 1024x4096", "`in_features`"),
        ("512x4096 and 1x4096", "`in_features`"),
    ],
)
def test_a_weight_of_four_bits(shapes: str, says: str) -> None:
    """A weight of one long row is bitsandbytes', not of another size."""
    frame = Frame("/w/train.py", 3, "main", "y = F.linear(x, weight)")
    message = f"mat1 and mat2 shapes cannot be multiplied ({shapes})"
    record = FailureRecord(
        0, 0.0, "RuntimeError", message, frames=(frame,), user_files=("/w/train.py",)
    )
    assert says in next_step(record).do
