"""A dry run of scripts/device-check: every part runs on simulated NPUs and fills the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.stacks import NPU, ROOT

sys.path.append(str(ROOT / "benchmarks"))

from device import forked, page, running
from device.bench import Bench
from device.machine import Machine

CHECK = str(ROOT / "scripts" / "device-check")
FIGURES = {
    "context": "the backend after an all_reduce, 2 ranks over HCCL",
    "forked": "2 of 2 forked, 0 with a device before they asked for one; losses equal to the CPU's",
    "ends": "ends with code 0 after ",
    "memory": "n = 4",
    "failures": "corrected in 1 attempt, losses within",
    "out_of_memory": "recognized; micro_batch: 16 -> ",
    "hang": "; the others wait in all_reduce",
    "steps": "torchrun, which has none",
    "numa": "--numa-binding node binds workers near their GPUs, and none was found",
}
"""Each part's output, with its condition on the simulated device."""


def checked(folder: Path, *options: str, **variables: str) -> tuple[int, str, dict[str, Any]]:
    """A dry run's exit code, output, and record."""
    done = subprocess.run(
        [sys.executable, CHECK, "--cpu", "--minutes=25", f"--results={folder}", *options],
        env={**NPU.environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    (path,) = folder.glob("dry-device-ascend-910b4-*.json")
    return done.returncode, done.stdout + done.stderr, json.loads(path.read_text())


def test_every_part_runs(tmp_path: Path) -> None:
    """Each measures its figures, and the page has them."""
    code, output, record = checked(tmp_path)
    assert {name: part["verdict"] for name, part in record["parts"].items()} == dict.fromkeys(
        running.PARTS, "right"
    ), output
    assert code == 0
    text = page.text([record])
    for name, words in FIGURES.items():
        assert words in json.dumps(record["parts"][name]["figures"]), name
        assert page.cell(words) in text, name
    assert record["machine"]["count"] == 8


def test_one_device_and_a_part_that_has_no_time(tmp_path: Path) -> None:
    """One rank on the vendor's backend, two ranks on one device; the last part is skipped."""
    only = "--only=context,hang"
    code, output, record = checked(tmp_path, only, ASCEND_RT_VISIBLE_DEVICES="3")
    assert code == 0, output
    told = json.dumps(record["parts"])
    assert "1 rank over HCCL" in told
    assert "two ranks over HCCL, one device" in told
    assert record["left_out"] == [name for name in running.PARTS if name not in ("context", "hang")]
    code, output, record = checked(tmp_path, "--only=numa", "--minutes=0.01")
    assert record["parts"]["numa"]["reason"] == "no time was left for it", output


def test_what_is_missing_is_said() -> None:
    """Missing packages are named, or that torch counts no device."""
    seen = {"devices": 1}
    machine = Machine("cuda", "H100", "h100-80gb", 1, 2**36, "host", {"torch": "2.11.0"}, seen)
    assert machine.missing(("torch",)) == ""
    assert machine.missing(("torch", "deepspeed", "peft")) == "not installed: deepspeed, peft"
    blind = Machine("cuda", "H100", "h100-80gb", 1, 2**36, "host", {"torch": "2.11.0"}, {})
    assert blind.missing(("torch",)) == "torch sees no device: it counts none"


PART = """\
from device.bench import Figure, SkippedError
TITLE, NEEDS, SECONDS = "A part", (), {seconds}
def run(bench):
    yield Figure("what", "here")
    {ends}
"""


@pytest.mark.parametrize(
    ("ends", "verdict", "reason"),
    [
        ("import time; time.sleep(600)", "too long", "ended after 20 s"),
        ("raise ValueError('on purpose')", "failed", "ValueError: on purpose"),
        ("import os; os.abort()", "failed", "exit code -6"),
        ("raise SkippedError('not here')", "skipped", "not here"),
        ("yield Figure('other', 'here', wrong=True)", "wrong", ""),
    ],
    ids=["too-long", "raises", "aborts", "skips", "wrong"],
)
def test_a_part_that_ends_badly_keeps_its_figures(
    ends: str, verdict: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its process dies, the check continues and the figures so far are kept."""
    is_late = verdict == "too long"
    name = f"part_that_ends_{'late' if is_late else 'badly'}"
    (tmp_path / "device").mkdir()
    text = PART.format(seconds=20 if is_late else 300, ends=ends)
    (tmp_path / "device" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine = Machine("npu", "910B4", "ascend-910b4", 2, 2**35, "host", {}, {})
    until = time.monotonic() + 600
    said: list[str] = []
    found = running.outcomes(machine, [name], tmp_path, until, tiny=False, say=said.append)
    assert found[name].verdict == verdict
    assert reason in found[name].reason
    assert found[name].figures[0]["here"] == "here"
    assert said[-1].startswith(f"{name}: {verdict}")


def test_what_nvml_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By process on all GPUs; memory of a process that isn't a worker is wrong."""
    here, worker = os.getpid(), 1
    running_on: dict[int, list[tuple[int, int | None]]] = {
        0: [(here, 3 << 20), (worker, 5 << 20)],
        1: [(worker, None), (2, 7 << 20)],
    }
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(running_on),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetComputeRunningProcesses=lambda index: [
            SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in running_on[index]
        ],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(forked, "has_nvidia_driver", lambda: True)
    assert forked.compute_processes() == {here: 3 << 20, worker: 5 << 20, 2: 7 << 20}
    bench = Bench("cuda", "h100-80gb", 1, 2**36, tmp_path, tmp_path, tiny=False)
    files, memory = forked.who_holds(bench, [here], {worker}, {2: 7 << 20})
    assert not files.wrong
    assert (memory.here, memory.wrong) == ("3 MiB", True)
    assert "2 new processes hold 8 MiB, for 1 workers" in memory.beside


def test_the_page_is_that_of_the_records() -> None:
    """docs/measured/devices.md is up to date."""
    text = (ROOT / "docs" / "measured" / "devices.md").read_text()
    assert text == page.text(page.records(ROOT / "benchmarks" / "results")), "device-check --page"
