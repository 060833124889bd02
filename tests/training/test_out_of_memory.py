"""Real out-of-memory errors: a smaller plan is computed, and the losses stay the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Finding
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.core.errors import Refused
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Setting
from safe_launch.diagnosis.allocator_message import allocation_of
from safe_launch.diagnosis.attempt import Attempt, Seen
from safe_launch.diagnosis.new_constraints import Learned, learned_from
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.planning.estimates.estimate import Ranks
from safe_launch.planning.plan import Plan
from safe_launch.planning.search import Rules, as_asked, resolve
from support.models import HARDWARE, QWEN2_7B, model_of, workload_of
from support.stacks import CURRENT, OLDER, SCENARIOS, Stack
from support.trainings import (
    MEMORY,
    SHORT,
    SMALL_HOST,
    attempts,
    foretold,
    launched,
    reference,
    trains_smaller,
)

GIB, MIB = 2**30, 2**20

WIDE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64_000,
    "hidden_size": 512,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
"""A model of 68 million parameters: 0.25 GiB of weights, four times that to train them all."""


@pytest.mark.parametrize("stack", [OLDER], ids=[OLDER.name], indirect=True)
def test_a_smaller_plan_is_computed_under_ddp(stack: Stack, tmp_path: Path) -> None:
    """On the older stack; test_five_failures.py has the current one."""
    trains_smaller(stack, tmp_path)


def test_a_smaller_plan_is_computed_under_zero_2(stack: Stack, tmp_path: Path) -> None:
    """DeepSpeed has compiled its operation before: a compiler needs more memory."""
    trains_smaller(stack, tmp_path, SCENARIOS / "zero3_lora.json", room_mib=175)


def test_what_has_trained_tells_what_a_larger_batch_needs(tmp_path: Path) -> None:
    """From the process's memory, for a model without a file.

    It is so small that the threads' address space, which is included, is a quarter of it.
    """
    foretold(CURRENT, tmp_path, *SHORT, within=0.3)


def test_a_model_that_only_the_worker_knows(tmp_path: Path) -> None:
    """No argument names the model: the Trainer asks and gets a smaller micro batch."""
    common = (*SHORT, "--max_steps=4", "--model_max_length=128")
    expected = reference(CURRENT, MEMORY, *common, "--per_device_train_batch_size=64")
    host = tmp_path / "host.yaml"
    host.write_text(SMALL_HOST.format(gib=1.6))
    options = ("--nproc=2", "--log-dir=runs", f"--hardware={host}")
    own = (*common, "--per_device_train_batch_size=32")
    ours, told = launched(CURRENT, tmp_path, "safe-launch", *options, MEMORY, *own)
    assert "settled  at Trainer, " in told
    assert attempts(told) == 1
    assert "micro_batch: 32 -> " in told
    assert "GiB a rank at most" in " ".join(told.replace("[safe-launch]", "").split())
    assert ours == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("rank", "code"), [(4, 0), (0, 78)])
def test_the_worker_decides_what_no_argument_tells(rank: int, code: int, tmp_path: Path) -> None:
    """All weights wouldn't fit; adapters, or none, are seen before the first step."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(WIDE))
    (tmp_path / "host.yaml").write_text(SMALL_HOST.format(gib=2.0))
    losses = tmp_path / "losses.json"
    done = CURRENT.run(
        *("safe-launch", "--nproc=2", "--log-dir=runs", "--hardware=host.yaml"),
        *(SCENARIOS / "hf_own_adapters.py", *SHORT, "--max_steps=2", "--optim=adamw_torch"),
        *("--model_name_or_path=model", f"--low_rank={rank}", f"--loss_file={losses}"),
        cwd=tmp_path,
    )
    assert done.returncode == code, done.stderr
    told = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert "doubt it may not fit into 0.95 GiB" in told
    assert "depends on assumed values: adapter (not stated)" in told
    assert "] change " not in done.stderr
    assert attempts(done.stderr) == 1
    assert losses.exists() == (code == 0)


@pytest.mark.parametrize(
    ("message", "asked", "allocated", "reserved", "capacity", "free"),
    [
        (
            (
                "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total "
                "capacity; 14.38 GiB already allocated; 19.75 MiB free; 14.55 GiB reserved in "
                "total by PyTorch)"
            ),
            20 * MIB,
            14.38 * GIB,
            14.55 * GIB,
            15.78 * GIB,
            19.75 * MIB,
        ),
        (
            (
                "CUDA out of memory. Tried to allocate 9.28 GiB. GPU 3 has a total capacity of "
                "79.15 GiB of which 5.06 GiB is free. Including non-PyTorch memory, this process "
                "has 74.08 GiB memory in use. Of the allocated memory 68.91 GiB is allocated by "
                "PyTorch, and 3.52 GiB is reserved by PyTorch but unallocated."
            ),
            9.28 * GIB,
            68.91 * GIB,
            (68.91 + 3.52) * GIB,
            79.15 * GIB,
            5.06 * GIB,
        ),
        (
            (
                "NPU out of memory. Tried to allocate 1.02 GiB (NPU 0; 29.50 GiB total capacity; "
                "27.51 GiB already allocated; 27.51 GiB current active; 401.43 MiB free; 28.12 GiB "
                "reserved in total by PyTorch)"
            ),
            1.02 * GIB,
            27.51 * GIB,
            28.12 * GIB,
            29.5 * GIB,
            401.43 * MIB,
        ),
    ],
    ids=["torch-1", "torch-2", "npu"],
)
def test_the_allocators_numbers(
    message: str, asked: float, allocated: float, reserved: float, capacity: float, free: float
) -> None:
    """Every message format since torch 1.0, and torch_npu's."""
    seen = allocation_of(FailureRecord(0, 0.0, "torch.OutOfMemoryError", message))
    found = (seen.requested, seen.allocated, seen.reserved, seen.capacity, seen.free)
    for one, expected in zip(found, (asked, allocated, reserved, capacity, free), strict=True):
        assert one == pytest.approx(expected, abs=16)
    assert seen.process is None


@pytest.mark.parametrize(("offload", "left"), [("optimizer", "none"), ("none", None)])
def test_a_host_with_accelerators_that_runs_out(offload: str, left: str | None) -> None:
    """Offloading ends; without any, the reason is reported."""
    asked = {
        Fact.ENGINE: "deepspeed",
        Setting.ZERO_STAGE: 3,
        Setting.OFFLOAD: offload,
        Setting.MICRO_BATCH: 1,
        Setting.ACCUMULATION: 1,
    }
    workload = workload_of(model_of(QWEN2_7B), asked)
    rules = Rules((), HARDWARE, Ranks(8, 8))
    plan = as_asked(LaunchRequest("x.py", False, (), 8, "--nproc 8"), workload, HARDWARE)
    record = FailureRecord(0, 0.0, exit_code=137, signal=9, oom_kills=1)
    entry = next(one for one in read_catalogue() if one.id == "host-out-of-memory-killed")
    assert entry.matches(record)
    assert not entry.matches(replace(record, oom_kills=0))
    finding = Finding(record, entry.role, entry)
    attempt = Attempt(0, plan, Path("nowhere"))
    learnt = learned_from(workload, attempt, Seen({}), finding, rules)
    if left is None:
        assert isinstance(learnt, Refused)
        return
    assert isinstance(learnt, Learned)
    following = resolve(plan.request, learnt.workload, HARDWARE, learnt.constraints)
    assert isinstance(following, Plan)
    assert following.preset.settings()[Setting.OFFLOAD] == left


def test_the_process_on_a_cpu() -> None:
    """The worker's own data size, and its smallest limit."""
    message = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 131072000 bytes."
    told = {"data": 480 * MIB, "data_limit": 500 * MIB, "cgroup_limit": 2**40}
    seen = allocation_of(FailureRecord(0, 0.0, "RuntimeError", message, memory=told))
    assert (seen.requested, seen.process, seen.capacity) == (131072000, 480 * MIB, 500 * MIB)
    assert seen.allocated is None


def test_an_accelerators_numbers_lead_to_the_next_plan() -> None:
    """The allocator's message gives the context, the limit, and the need for more."""
    asked = {
        Fact.ENGINE: "deepspeed",
        Setting.ZERO_STAGE: 2,
        Setting.OFFLOAD: "none",
        Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
        Setting.MICRO_BATCH: 8,
        Setting.ACCUMULATION: 1,
        Setting.PRECISION: "bf16",
    }
    workload = workload_of(model_of(QWEN2_7B), asked)
    request = LaunchRequest("x.py", False, (), 8, "--nproc 8")
    plan = resolve(request, workload, HARDWARE, ())
    assert isinstance(plan, Plan)
    assert plan.changes == ()
    message = (
        "CUDA out of memory. Tried to allocate 9.28 GiB. GPU 3 has a total capacity of 79.15 GiB "
        "of which 1.06 GiB is free. Of the allocated memory 74.00 GiB is allocated by PyTorch, and "
        "0.50 GiB is reserved by PyTorch but unallocated."
    )
    record = FailureRecord(3, 0.0, "torch.OutOfMemoryError", message, memory={"before_model": 7})
    entry = next(one for one in read_catalogue() if one.id == "accelerator-out-of-memory")
    finding = Finding(record, entry.role, entry)
    attempt = Attempt(0, plan, Path("nowhere"))
    learnt = learned_from(workload, attempt, Seen({}), finding, Rules((), HARDWARE, Ranks(8, 8)))
    assert isinstance(learnt, Learned)
    known = learnt.workload
    (measured,) = known.measured
    assert measured.context == pytest.approx((79.15 - 1.06 - 74.5) * GIB, abs=16)
    assert measured.needed == pytest.approx((74 + 9.28) * GIB, abs=16)
    following = resolve(request, known, HARDWARE, learnt.constraints)
    assert isinstance(following, Plan)
    settings = following.preset.settings()
    assert settings != plan.preset.settings()
    assert settings[Setting.MICRO_BATCH] * settings[Setting.ACCUMULATION] == 8
    assert following.chosen.estimate is not None
    assert following.chosen.estimate.bound <= 79.15 * GIB
