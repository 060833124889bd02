"""Settings, packages, ports and files in a log that a failure is about."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.choose import next_step
from safe_launch.evidence.failure_record import FailureRecord, Frame

SHAPES = "The size of tensor a (12) must match the size of tensor b (64) at dimension 0"
DEVICES = "Expected all tensors to be on the same device, but found at least two devices, {}!"
INDUCTOR = ".../torch/_inductor/scheduler.py"
ENGINE = ".../vllm/distributed/utils.py"


def step_of(
    exception: str, message: str, *tail: str, file: str = ".../some_package/core.py"
) -> tuple[str, str]:
    """The rule and the advice."""
    frames = (Frame(file, 12, "run", "call(values)"),)
    record = FailureRecord(0, 0.0, f"builtins.{exception}", message, frames=frames, log_tail=tail)
    step = next_step(record)
    return step.rule, step.do


@pytest.mark.parametrize(
    ("message", "given", "says"),
    [
        (
            SHAPES,
            "swift sft --sequence_parallel_size 8",
            "1 instead of `--sequence_parallel_size 8",
        ),
        (SHAPES, "actor.ulysses_sequence_parallel_size=2", "sequence_parallel_size=2`"),
        (SHAPES, "context_parallel_degree: 4", "`context_parallel_degree: 4`"),
        (SHAPES, "--sequence_parallel_size 1", ""),
        (SHAPES, "--tensor_parallel_size 8", ""),
        (DEVICES.format("cuda:2 and cuda:3"), "device_map: auto", "one process for each device"),
        (DEVICES.format("cuda:2 and cuda:3"), "world_size: 12", ""),
        (DEVICES.format("cuda:0 and cpu"), "ref.offload_policy=True", "Switch the offload off"),
        (DEVICES.format("cuda:0 and cpu"), "offload_policy=False", ""),
    ],
)
def test_a_setting_that_takes_part(message: str, given: str, says: str) -> None:
    """The setting is quoted; other values and settings aren't blamed."""
    rule, do = step_of("RuntimeError", message, given)
    assert (rule == "switch") == bool(says), do
    assert says in do


@pytest.mark.parametrize(
    ("exception", "message", "file", "says"),
    [
        ("LoweringException", "assert index", INDUCTOR, "TORCHDYNAMO_DISABLE=1"),
        ("RuntimeError", "bad shape", ".../liger_kernel/ops/rope.py", "--use_liger_kernel false"),
        ("RuntimeError", "bad shape", ".../some_package/rope.py", ""),
        ("OutOfMemoryError", "CUDA out of memory.", INDUCTOR, ""),
    ],
)
def test_a_package_that_can_be_left_out(exception: str, message: str, file: str, says: str) -> None:
    """Only one that the failure is in, and not for failures with causes of their own."""
    rule, do = step_of(exception, message, file=file)
    assert (rule == "optional-part") == bool(says), do
    assert says in do


@pytest.mark.parametrize(
    ("message", "tail", "file", "says"),
    [
        ("[Errno 98] Address already in use", (), ".../uvicorn/server.py", "on this port"),
        ("[Errno 98] Address already in use", (), ENGINE, "vLLM or SGLang wanted to listen"),
        (
            *("port 51216: Address already in use", ("serve --group_port 51216",)),
            *(ENGINE, "Give another number with `--group_port`"),
        ),
    ],
)
def test_whose_port_is_taken(message: str, tail: tuple[str, ...], file: str, says: str) -> None:
    """An option's, an engine's, or another program's."""
    rule, do = step_of("OSError", message, *tail, file=file)
    assert (rule, says in do) == ("taken-port", True), do


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("Corrupted video found: /data/v_1.mp4, [BytesIO]Unable to handle EOF", "/data/v_1.mp4"),
        ("cannot identify image file /data/a b/7.JPG", "/7.JPG"),
        ("moov atom not found in clips/3.mov", "clips/3.mov"),
        ("could not open the port of /data/v_1.mp5", ""),
        ("the loss of /data/v_1.mp4 is high", ""),
    ],
)
def test_a_damaged_file(message: str, says: str) -> None:
    """A file of the data, with words that it can't be read."""
    rule, do = step_of("DecodeError", message)
    assert (rule == "damaged-file") == bool(says), do
    assert says in do


def test_a_check_within_ray() -> None:
    """Its C++ check failed, in a run under Ray."""
    check = "task_receiver.cc:219: Check failed: objects_valid"
    assert step_of("RuntimeError", check, "ray::Worker.step()")[0] == "runtimes-check"
    assert step_of("RuntimeError", check, "plain.run()")[0] != "runtimes-check"
