"""On NPUs that exist in the host's memory alone: detection, engines, and failures corrected.

tests/standins/npu says what they are; docs/design/devices.md what this proves, and what it can't.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.hangs import Case as Hang
from support.hangs import begun, line_of
from support.ports import free_port
from support.stacks import CURRENT, EXAMPLES, NPU, RELEASING, SCENARIOS
from support.trainings import (
    CASES,
    FINETUNE,
    FIRST_FIVE,
    MEMORY,
    SHORT,
    TRAINER,
    Case,
    attempts,
    dies_under_torchrun,
    foretold,
    launched,
    reference,
    trains_corrected,
)

CORRECTED = (*FIRST_FIVE, "dummy loss on the Trainer")
ON_DEVICE = [option for option in TRAINER if option != "--use_cpu"]
SEES = """\
import os, pathlib, torch
forked = b"LOCAL_RANK=" not in pathlib.Path("/proc/self/environ").read_bytes()
touched = torch.npu.is_initialized()
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
print(forked, touched, torch.npu.device_count(), torch.npu.current_device())
"""
SHARES = """\
import os, torch, torch.distributed as dist
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("hccl")
ranks = torch.tensor(dist.get_rank() + 1, device="npu")
dist.all_reduce(ranks)
visible = os.environ["ASCEND_RT_VISIBLE_DEVICES"]
print(dist.get_rank(), "of", visible, "on", torch.npu.current_device(), ranks.item())
dist.destroy_process_group()
"""


def without_cpu(case: Case) -> Case:
    """The same case where the device is taken that is there."""
    return replace(case, arguments=tuple(one for one in case.arguments if one != "--use_cpu"))


def test_what_the_launcher_and_the_workers_see(tmp_path: Path) -> None:
    """The devices that are visible, one each; the forked server has touched none of them."""
    (tmp_path / "sees.py").write_text(SEES)
    variables = {"ASCEND_RT_VISIBLE_DEVICES": "2,5"}
    run = ("safe-launch", "--log-dir=runs", "sees.py")
    done = NPU.run(*run, cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert "on 2 x ascend-910b4" in done.stderr
    assert sorted(done.stdout.splitlines()) == ["True False 2 0", "True False 2 1"]
    plan = NPU.run("safe-launch", "plan", "--nproc=npu", "sees.py", cwd=tmp_path)
    assert "on 8 x ascend-910b4" in plan.stdout


def test_an_import_that_touches_a_device(tmp_path: Path) -> None:
    """No worker is forked from it: each begins afresh."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "touches.py").write_text("import torch\n\nheld = torch.ones(1, device='npu')\n")
    (tmp_path / "sees.py").write_text(f"import touches\n{SEES}")
    stack = replace(NPU, packages=(*NPU.packages, installed))
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", "sees.py")
    done = stack.run(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["False True 8 0", "False True 8 1"]


def test_two_nodes_with_devices_of_their_own(tmp_path: Path) -> None:
    """Those that each node's variable names: HCCL's helper would refuse one that another has."""
    (tmp_path / "shares.py").write_text(SHARES)
    shared = ("--nnodes=2", "--nproc=npu", "--master-addr=127.0.0.1", "--log-dir=runs")
    run = ("safe-launch", *shared, f"--master-port={free_port()}")
    variables = {"STANDIN_HCCP_SECONDS": "0", "TMPDIR": str(tmp_path)}

    def node(rank: int) -> list[str]:
        own = {**variables, "ASCEND_RT_VISIBLE_DEVICES": ("2,5", "0,7")[rank]}
        done = NPU.run(*run, f"--node-rank={rank}", "shares.py", cwd=tmp_path, **own)
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.splitlines())

    with ThreadPoolExecutor() as pool:
        told = [*pool.map(node, (0, 1))]
    assert told == [
        ["0 of 2,5 on 0 10", "1 of 2,5 on 1 10"],
        ["2 of 0,7 on 0 10", "3 of 0,7 on 1 10"],
    ]


@pytest.mark.parametrize(
    "engine",
    [
        (),
        (f"--deepspeed={EXAMPLES / 'zero2.json'}",),
        (f"--deepspeed={SCENARIOS / 'zero3.json'}",),
        ("--fsdp=full_shard", '--fsdp_config={"version": 1}'),
        ("--fsdp=full_shard", '--fsdp_config={"version": 2}'),
    ],
    ids=["ddp", "zero2", "zero3", "fsdp1", "fsdp2"],
)
def test_engines_train_to_the_losses_of_the_cpu(engine: tuple[str, ...], tmp_path: Path) -> None:
    """The Trainer as it is, on two devices, left alone; half of the global batch each."""
    expected = reference(CURRENT, FINETUNE, *TRAINER, "--per_device_train_batch_size=8")
    own = (*ON_DEVICE, "--per_device_train_batch_size=4", *engine)
    losses, told = launched(NPU, tmp_path, "safe-launch", "--nproc=2", FINETUNE, *own)
    assert "nothing is changed" in told
    assert losses == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in CORRECTED], ids=lambda case: case.id
)
def test_a_failure_is_corrected(case: Case, tmp_path: Path) -> None:
    """It dies on the device as on the CPU; corrected it trains to the CPU's losses.

    Where the plan doesn't avoid it, the first attempt dies, which its entry's name shows.
    """
    beside = CURRENT if CURRENT.name in case.fails_on else RELEASING
    stack = replace(NPU, packages=(*NPU.packages, *beside.packages))
    if case.entry is None:
        dies_under_torchrun(stack, without_cpu(case), tmp_path)
    trains_corrected(stack, without_cpu(case), tmp_path, beside)


def test_a_device_that_the_last_attempt_still_holds(tmp_path: Path) -> None:
    """HCCL's helper process outlives the workers: EJ0001; ten seconds later the device is free."""
    case = without_cpu(next(case for case in CASES if case.name == "vision tower under ZeRO-2"))
    expected = reference(CURRENT, case.script, *case.reference)
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", case.script, *case.arguments)
    losses, told = launched(NPU, tmp_path, *run, STANDIN_HCCP_SECONDS="6", TMPDIR=str(tmp_path))
    assert losses == pytest.approx(expected, rel=1e-4)
    found = re.findall(r"attempt \d: failed: .*?\((\S+)\)", told)
    assert found == ["zero2-gradient-reduced-twice", "hccp-still-running"]
    assert attempts(told) == 3


def test_hangs_and_stragglers_on_devices(tmp_path: Path) -> None:
    """The rank that the others wait for, in a collective over HCCL, and the one that is slow."""
    modes = ("stuck", "slow", "well")
    cases = {mode: Hang("device.py", (mode,), goes_on=mode == "stuck", stack=NPU) for mode in modes}
    with begun(cases, tmp_path) as awaited:
        stuck, slow, well = map(awaited, modes)
    assert stuck.blamed() == {1: line_of("device.py", "stuck: device")}, stuck.output
    assert "rank 1 on" in slow.words(), slow.output
    assert "keeps the others waiting" in slow.words()
    assert (slow.code, slow.reports) == (0, [])
    assert (well.code, well.reports) == (0, []), well.output
    for place in (0, 1):
        assert f"rank {place} is done on {place}, True" in well.output


def test_what_has_trained_tells_what_a_larger_batch_needs(tmp_path: Path) -> None:
    """By the device's own counts."""
    foretold(NPU, tmp_path, *(one for one in SHORT if one != "--use_cpu"), within=0.1)


def test_a_device_out_of_memory(tmp_path: Path) -> None:
    """Its allocator refuses; the next plan fits in what it says that there is."""
    common = (*SHORT, "--max_steps=4", "--model_max_length=128")
    expected = reference(CURRENT, MEMORY, *common, "--per_device_train_batch_size=32")
    own = [option for option in common if option != "--use_cpu"]
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", MEMORY, *own)
    losses, told = launched(
        *(NPU, tmp_path, *run, "--per_device_train_batch_size=16"),
        STANDIN_NPU_MEMORY="400000000",
    )
    assert "(accelerator-out-of-memory)" in told
    assert "of at most 0.37 GiB" in told
    assert "micro_batch: 16 -> " in told
    assert 2 <= attempts(told) <= 3
    assert losses == pytest.approx(expected, rel=1e-4)
    failures = json.loads(next(tmp_path.glob("runs/*/attempt-1/failures.json")).read_text())
    assert re.search(r"NPU out of memory", json.dumps(failures))
