"""NPUs simulated in host memory: detection, engines, and corrected failures.

tests/standins/npu describes them; docs/design/devices.md states what this proves and what it can't.
FSDP2 is in test_fsdp.py; test_device_check.py has a hang, a device out of memory, and DDP.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.hangs import Case as Hang
from support.hangs import ended
from support.ports import free_port
from support.stacks import CURRENT, NPU, RELEASING, SCENARIOS
from support.trainings import (
    CASES,
    FINETUNE,
    FIRST_FIVE,
    SHORT,
    TRAINER,
    Case,
    attempts,
    dies_plainly,
    foretold,
    launched,
    reference,
    trains_corrected,
)
from support.waiting import wait_for

CORRECTED = (*FIRST_FIVE[:-1], "dummy loss on the Trainer")
"""The last of the first five is what scripts/device-check tries (test_device_check.py)."""
ON_DEVICE = [option for option in TRAINER if option != "--use_cpu"]
TRAINS = """\
import os, pathlib, sys, time, torch, torch.distributed as dist
forked = b"LOCAL_RANK=" not in pathlib.Path("/proc/self/environ").read_bytes()
touched = torch.npu.is_initialized()
place, attempt = int(os.environ["LOCAL_RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
torch.npu.set_device(place)
dist.init_process_group("hccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).to("npu"))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.ones(1, 1024, device="npu")).sum().backward()
    optimizer.step()
print(forked, touched, torch.npu.device_count(), torch.npu.current_device(), flush=True)
pathlib.Path(f"attempt-{attempt}", f"{place}-{os.getpid()}").touch()
while not os.path.exists(f"attempt-{attempt}/seen"):
    time.sleep(0.01)
sys.exit(0 if f"attempt-{attempt}" == sys.argv[1] else 3)
"""
COUNTS = """import os, sys
from safe_launch.commands.training import training_of
from safe_launch.options.parser import parsed
from torch.distributed.run import determine_local_world_size as theirs
def ours(word):
    return training_of(parsed(("--nproc", word, sys.argv[0])), is_launch=False).request.nproc
tools = os.environ["PATH"]
for word in ("auto", "npu", "gpu", "cpu", "3"):
    try:
        count = theirs(word)
    except ValueError as error:
        count = str(error)
    print(word, count, ours(word))
os.environ["PATH"] = "/nowhere"
print("without npu-smi", ours("auto"), ours("npu"))
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
    """The same case on the available device."""
    return replace(case, arguments=tuple(one for one in case.arguments if one != "--use_cpu"))


def holding(folder: Path) -> dict[int, list[str]]:
    """The processes with open files in a folder, and the files."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            names = {
                Path(file.path).name for file in process.open_files() if str(folder) in file.path
            }
            found[process.pid] = sorted(names)
    return {pid: names for pid, names in found.items() if names}


@contextmanager
def killed_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    """Ends a launcher left by a failed test; its workers end with it."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.parametrize("touches", [False, True], ids=["forked", "an-import-touches-a-device"])
def test_who_holds_the_devices(touches: bool, tmp_path: Path) -> None:
    """Only the workers, one each, in every attempt; `status` shows their memory.

    They are forked from a process that has used no device. If an import uses one, new processes
    start instead.
    """
    tried = [tmp_path / f"attempt-{number}" for number in range(1 if touches else 2)]
    for folder in (tmp_path / "dev", tmp_path / "site-packages", *tried):
        folder.mkdir()
    (tmp_path / "site-packages" / "touches.py").write_text(
        "import torch\n\nheld = torch.ones(1, device='npu')\n"
    )
    (tmp_path / "trains.py").write_text("import touches\n" * touches + TRAINS)
    stack = replace(NPU, packages=(*NPU.packages, tmp_path / "site-packages"))
    variables = {"ASCEND_RT_VISIBLE_DEVICES": "2,5", "STANDIN_NPU_FILES": str(tmp_path / "dev")}
    expected = [["davinci2", "davinci_manager"], ["davinci5", "davinci_manager"]]
    if touches:
        expected[1] = sorted({*expected[0], *expected[1]})
    launch = subprocess.Popen(
        [
            stack.bin / "safe-launch",
            "--log-dir=runs",
            "--max-restarts=1",
            "trains.py",
            tried[-1].name,
        ],
        cwd=tmp_path,
        env={**stack.environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with launch, killed_at_last(launch):
        for attempt in tried:
            wait_for(lambda here=attempt: len([*here.iterdir()]) == 2)
            ranks = dict(map(int, path.name.split("-")) for path in attempt.iterdir())
            assert holding(tmp_path / "dev") == {ranks[0]: expected[0], ranks[1]: expected[1]}
            (run_folder,) = (tmp_path / "runs").iterdir()
            shown = stack.run("safe-launch", "status", "--json", run_folder, cwd=tmp_path)
            (run,) = json.loads(shown.stdout)["runs"]
            for rank in run["ranks"]:
                assert (rank["phase"], rank["step"]) == ("training", 2)
                assert 16 << 20 < rank["peak"] < 32 << 20, "four times the weights' 4 MiB, and more"
            (attempt / "seen").touch()
        printed, told = launch.communicate()
    assert launch.returncode == 0, told
    assert "on 2 x ascend-910b4" in told
    each = [f"{not touches} {touches} 2 {place}" for place in (0, 1)]
    assert sorted(printed.splitlines()) == sorted(each * len(tried))
    assert holding(tmp_path / "dev") == {}


def test_what_torchruns_words_count(tmp_path: Path) -> None:
    """The visible devices, as in torchrun; without the vendor's tool, torch's count."""
    (tmp_path / "counts.py").write_text(COUNTS)
    counted = NPU.run("python", "counts.py", cwd=tmp_path, ASCEND_RT_VISIBLE_DEVICES="2,5")
    cores = len(os.sched_getaffinity(0))
    assert counted.stdout.splitlines() == [
        "auto 2 2",
        "npu 2 2",
        "gpu Cuda is not available. 2",
        f"cpu {cores} {cores}",
        "3 3 3",
        "without npu-smi 2 2",
    ], counted.stderr


def test_two_nodes_with_devices_of_their_own(tmp_path: Path) -> None:
    """Each node's variable selects its devices: HCCL's helper refuses a device in use."""
    (tmp_path / "shares.py").write_text(SHARES)
    shared = ("--nnodes=2", "--nproc=npu", "--master-addr=127.0.0.1", "--log-dir=runs")
    run = ("safe-launch", *shared, f"--master-port={free_port()}")
    variables = {"STANDIN_HCCP": "ends", "TMPDIR": str(tmp_path)}

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
        (f"--deepspeed={SCENARIOS / 'zero3.json'}",),
        ("--fsdp=full_shard", '--fsdp_config={"version": 1}'),
    ],
    ids=["ddp", "zero3", "fsdp1"],
)
def test_engines_train_to_the_losses_of_the_cpu(engine: tuple[str, ...], tmp_path: Path) -> None:
    """The unchanged Trainer on two devices, each with half of the global batch."""
    expected = reference(CURRENT, FINETUNE, *TRAINER, "--per_device_train_batch_size=8")
    own = (*ON_DEVICE, "--per_device_train_batch_size=4", *engine)
    losses, told = launched(NPU, tmp_path, "safe-launch", "--nproc=2", FINETUNE, *own)
    assert "nothing is changed" in told
    assert losses == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in CORRECTED], ids=lambda case: case.id
)
def test_a_failure_is_corrected(case: Case, tmp_path: Path) -> None:
    """It fails as on the CPU; corrected it trains to the CPU's losses.

    If the plan doesn't avoid it, the first attempt fails, as its entry's name shows.
    """
    beside = CURRENT if CURRENT.name in case.fails_on else RELEASING
    stack = replace(NPU, packages=(*NPU.packages, *beside.packages))
    if case.entry is None:
        dies_plainly(stack, without_cpu(case), tmp_path)
    trains_corrected(stack, without_cpu(case), tmp_path, beside)


def test_a_device_that_the_last_attempt_still_holds(tmp_path: Path) -> None:
    """HCCL's helper outlives the workers: EJ0001; ten seconds later the device is free.

    Workers don't ask, so that the first attempt fails.
    """
    case = without_cpu(next(case for case in CASES if case.name == "vision tower under ZeRO-2"))
    expected = reference(CURRENT, case.script, *case.reference)
    run = ("safe-launch", "--nproc=2", "--ask=off", "--log-dir=runs", case.script, *case.arguments)
    losses, told = launched(NPU, tmp_path, *run, STANDIN_HCCP="lingers", TMPDIR=str(tmp_path))
    assert losses == pytest.approx(expected, rel=1e-4)
    found = re.findall(r"attempt \d: failed: .*?\((\S+)\)", told)
    assert found == ["zero2-gradient-reduced-twice", "hccp-still-running"]
    assert "waiting 10 s: hccp-still-running is transient" in told
    assert attempts(told) == 3


def test_a_straggler_on_devices(tmp_path: Path) -> None:
    """It is named while others wait for it over HCCL, and isn't taken for a hang."""
    slow = ended(Hang("device.py", ("slow",), goes_on=False, stack=NPU), tmp_path / "slow")
    assert "rank 1 on" in slow.words(), slow.output
    assert "keeps the others waiting" in slow.words()
    assert (slow.code, slow.reports) == (0, [])
    for place in (0, 1):
        assert f"rank {place} is done on {place}, True" in slow.output


def test_what_has_trained_tells_what_a_larger_batch_needs(tmp_path: Path) -> None:
    """The device's own counts are used."""
    foretold(NPU, tmp_path, *(one for one in SHORT if one != "--use_cpu"), within=0.1)
