"""Hardware profiles and device detection."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.commands.hardware import hardware_rows, known_table
from safe_launch.core.choices import Precision
from safe_launch.core.errors import LaunchError
from safe_launch.core.hardware import Hardware
from safe_launch.machine import host, probes
from safe_launch.machine.detect import detect, of_devices
from safe_launch.machine.named_hardware import contradictions, hardware_of
from safe_launch.machine.probes import Device, from_amd_smi, from_npu_smi, from_rocm_smi, visible
from safe_launch.machine.profiles import (
    KINDS,
    accelerator_of,
    matching,
    nodes,
    profile_named,
    profiles,
    read_node,
    read_profile,
)
from support.stacks import ROOT
from support.tables import table

GIB, MIB = 2**30, 2**20
HERE = Hardware(accelerator_of(profile_named("cpu")), 0, 4, 64 * GIB)
FIXTURES = ROOT / "tests" / "fixtures"


def test_profiles_are_plausible() -> None:
    """Each has sources; frameworks report at most the driver's memory; file names match."""
    for profile in profiles():
        assert profile.sources, profile.name
        if profile.name not in KINDS:
            assert 0.85 < profile.memory_gib * 1024 / profile.driver_mib <= 1.0, profile.name
            assert 10 < profile.compute_tflops < 5000
            assert 100 < profile.bandwidth_gb_s < 10_000
    files = {path.stem for path in (ROOT / "hardware" / "accelerators").rglob("*.yaml")}
    assert files == {profile.name for profile in profiles()}
    for node in nodes():
        profile_named(node.accelerator)
    for kind in ("cuda", "npu", "rocm"):  # used if no other profile matches
        least = min(each.memory_gib for each in profiles() if each.kind == kind)
        assert profile_named(kind).memory_gib == least, kind


@table(
    ("kind", "name", "mib", "expected"),
    [
        ("cuda", "NVIDIA A100-SXM4-80GB", 81920, "a100-80gb"),
        ("cuda", "NVIDIA A100-SXM4-40GB", 40960, "a100-40gb"),
        ("cuda", "A100-PCIE-40GB", 40960, "a100-40gb"),
        ("cuda", "NVIDIA A800-SXM4-80GB", 81920, "a800-80gb"),
        ("cuda", "NVIDIA H20", 97871, "h20-96gb"),
        ("cuda", "NVIDIA H20-3e", 143771, "h20-3e-141gb"),
        ("cuda", "NVIDIA H100 80GB HBM3", 81559, "h100-80gb"),
        ("cuda", "NVIDIA H100 PCIe", 81559, "h100-80gb-pcie"),
        ("cuda", "NVIDIA H800", 81559, "h800-80gb"),
        ("cuda", "NVIDIA H200", 143771, "h200-141gb"),
        ("cuda", "NVIDIA GH200 144G HBM3e", 147456, None),
        ("cuda", "NVIDIA L20", 46068, "l20"),
        ("cuda", "NVIDIA L40S", 46068, "l40s"),
        ("cuda", "Tesla V100-SXM2-32GB", 32768, "v100-32gb"),
        ("npu", "910B4", 32768, "ascend-910b4"),
        ("npu", "910B4-1", 65536, "ascend-910b4-1"),
        ("npu", "910B4", 65536, "ascend-910b4-1"),
        ("npu", "910PremiumA", 32768, "ascend-910a"),
        ("npu", "910A", 32768, "ascend-910a"),
        ("npu", "310P3", 44280, None),
        ("npu", "910B3", 65536, "ascend-910b3"),
        ("npu", "910B", 32768, "ascend-910a"),
        ("npu", "910ProB", 32768, "ascend-910a"),
        ("npu", "Ascend910", 65536, "ascend-910c"),
        ("rocm", "AMD Instinct MI300X", 196592, "mi300x"),
        ("rocm", "AMD Instinct MI300X VF", 196288, "mi300x"),
        ("rocm", "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2", 65520, "mi250x"),
        ("cuda", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728, None),
        ("cuda", "NVIDIA GeForce GTX 1080", 8192, None),
    ],
)
def test_names_of_the_vendors_tools(kind: str, name: str, mib: int, expected: str | None) -> None:
    """Names and sizes; one name has several sizes, and 910B without a digit is the first."""
    found = matching(kind, name, mib * MIB)
    assert (None if found is None else found.name) == expected


GOOD = (ROOT / "hardware" / "accelerators" / "nvidia" / "l40s.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("memory_gib: 44.3", "memory_gb: 44.3", "unknown key `memory_gb`"),
        ("memory_gib: 44.3", "memory_gib: 44 GB", "`memory_gib`"),
        ("memory_gib: 44.3", "memory_gib: 0", "only a CPU has no memory of its own"),
        ("memory_gib: 44.3\n", "", "`memory_gib` is missing"),
        ("compute_tflops: 362", "compute_tflops: -3", "`compute_tflops`: -3.0 isn't possible"),
        ("compute_tflops: 362", "compute_tflops: .inf", "`compute_tflops`: inf isn't possible"),
        ("memory_gib: 44.3", "memory_gib: .nan", "`memory_gib`: nan isn't possible"),
        ("precisions: [bf16, fp16, fp32]\n", "", "`precisions`: a device needs at least one"),
        ("kind: cuda", "kind: gpu", "`kind`: 'gpu'"),
        ("[bf16, fp16, fp32]", "[bf16, fp61]", "`precisions`: 'fp61'"),
        ("['L40S']", "['L40S(']", "`aliases`: 'L40S('"),
        ("name: l40s", "name: [", "not YAML"),
        ("name: l40s", "name: \0", "not YAML"),
        ("compute_tflops: 362", f"compute_tflops: {10**400}", "`compute_tflops`"),
        ("memory_gib: 44.3", "memory_gib: ${x}", "`memory_gib`: expected `float`, got `str`"),
        ("['L40S']", "${x}", "`aliases`: expected `array`, got `str`"),
    ],
)
def test_a_corrupted_profile(old: str, new: str, problem: str, tmp_path: Path) -> None:
    """The error has file, line and key."""
    path = tmp_path / "mine.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(LaunchError) as caught:
        read_profile(path)
    assert problem in caught.value.problem
    assert caught.value.problem.startswith(f"{path}:")


def test_a_corrupted_node(tmp_path: Path) -> None:
    """Node files give the same errors."""
    path = tmp_path / "node.yaml"
    path.write_text("name: x\naccelerator: l40s\naccelerators: 0\ncores: 8\nhost_memory_gib: 64\n")
    with pytest.raises(LaunchError) as caught:
        read_node(path)
    assert caught.value.problem == f"{path}:3: `accelerators`: 0 isn't possible"


def test_hardware_by_name_and_by_file(tmp_path: Path) -> None:
    """A device, a node, a file of either; misspelt names get a suggestion."""
    assert hardware_of("dgx-a100-80gb", HERE).accelerators == 8
    alone = hardware_of("ascend-910b4", HERE)
    assert (alone.accelerator.memory, alone.notes != ()) == (int(29.49 * GIB), True)
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    assert hardware_of(str(path), HERE).accelerator.name == "l40s"
    with pytest.raises(LaunchError) as caught:
        hardware_of("l40z", HERE)
    assert caught.value.hint == "did you mean `l40s`? Near it are `l4`, `a40`"


def test_a_users_node_with_a_device_of_its_own(tmp_path: Path) -> None:
    """The node's file names a device file beside it; a missing one is reported with its line."""
    (tmp_path / "mine.yaml").write_text(GOOD.replace("memory_gib: 44.3", "memory_gib: 40"))
    node = tmp_path / "node.yaml"
    text = "name: x\naccelerator: mine.yaml\naccelerators: 2\ncores: 8\nhost_memory_gib: 64\n"
    node.write_text(text)
    found = hardware_of(str(node), HERE)
    assert (found.accelerator.memory, found.accelerators) == (40 * GIB, 2)
    node.write_text(text.replace("mine.yaml", "l40"))
    with pytest.raises(LaunchError) as caught:
        hardware_of(str(node), HERE)
    assert caught.value.problem == f"{node}:2: `accelerator`: there is no `l40`"
    assert caught.value.hint == "did you mean `l40s`? Near it are `l4`, `a40`"
    node.write_text(text.replace("mine.yaml", "l" * 400))
    with pytest.raises(LaunchError):
        hardware_of(str(node), HERE)


def test_a_device_named_on_a_host_that_has_it() -> None:
    """Count, host memory and memory in use are this host's."""
    there = of_devices(HERE, [device("NVIDIA L40S", 45, used=11)] * 2)
    named = hardware_of("l40s", there)
    assert (named.accelerators, named.host_memory, named.in_use) == (2, 64 * GIB, there.in_use)
    assert named.notes == there.notes
    assert contradictions(named, there, 2) == []
    unknown = replace(there, accelerator=accelerator_of(profile_named("cuda")))
    assert hardware_of("l40s", unknown).accelerators == 2
    assert contradictions(hardware_of("l40s", unknown), unknown, 2) == []


def test_contradictions_name_both_numbers() -> None:
    """Kind, memory and count are compared."""
    a100, l40s = (hardware_of(name, HERE) for name in ("a100-80gb", "l40s"))
    assert "it is a cuda (a100-80gb), this host has cpu (cpu)" in contradictions(a100, HERE, 8)
    assert contradictions(a100, a100, 8) == []
    assert "79.1 GiB a device, the devices here have 44.3" in contradictions(a100, l40s, 8)[0]
    small = replace(a100, host_memory=256 * GIB)
    assert contradictions(a100, small, 8) == [
        "it has 1024 GiB of host memory, this host has 256 for the job"
    ]
    few = replace(a100, accelerators=2)
    assert contradictions(a100, few, 8) == ["8 workers are asked for, 2 devices are here"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("910a", [("910A", 0, 32768), ("910A", 0, 32768)]),
        ("910prob", [("910ProB", 18, 32768), ("910ProB", 8, 32768)]),
        ("310p3", [("310P3", 1529, 44280), ("310P3", 1412, 43693)]),
        ("910b4", [("910B4", 2859, 32768), ("910B4", 2847, 32768)]),
        ("910b4-in-use", [("910B4", 26838, 32768), ("910B4", 29356, 32768)]),
        ("910b4-1", [("910B4-1", 3197, 65536), ("910B4-1", 3197, 65536)]),
        (
            "910c",
            [
                ("Ascend910", 3419, 65536),
                ("Ascend910", 2874, 65536),
                ("Ascend910", 15503, 65536),
                ("Ascend910", 15242, 65536),
            ],
        ),
    ],
)
def test_tables_of_npu_smi(file: str, expected: list[tuple[str, int, int]]) -> None:
    """Two lines a chip, of any width; the last pair is memory, processes aren't devices."""
    text = (FIXTURES / "npu-smi" / f"{file}.txt").read_text()
    found = [(one.name, one.used // MIB, one.total // MIB) for one in from_npu_smi(text)]
    assert found == expected


@pytest.mark.parametrize(
    ("file", "in_use"),
    [("910a", 0), ("910prob", 0), ("910b4", 0), ("910b4-1", 0), ("910b4-in-use", 26161)],
)
def test_what_others_hold_of_an_npu(file: str, in_use: int) -> None:
    """An idle device's driver memory isn't another process's."""
    text = (FIXTURES / "npu-smi" / f"{file}.txt").read_text()
    assert of_devices(HERE, from_npu_smi(text)).in_use // MIB == in_use


def test_no_table_of_npu_smi() -> None:
    """Other output gives no devices."""
    for text in ("", "dcmi module initialize failed. ret is -8005", "| 0 | 1 | 2 / 3 |\n", "|||\n"):
        assert from_npu_smi(text) == []


def test_a_card_of_rocm_smi() -> None:
    """The output was posted by a user."""
    text = (FIXTURES / "rocm-smi" / "rx-7900-xt.json").read_text()
    assert from_rocm_smi(text) == [Device("rocm", "Radeon RX 7900 XT", 21458059264, 27856896)]


def test_what_rocm_smi_and_amd_smi_print() -> None:
    """The JSON's keys differ between versions."""
    old = (
        '{"card0": {"Card series": "AMD Instinct MI300X", "VRAM Total Memory (B)": "206141652992",'
        ' "VRAM Total Used Memory (B)": "295698432"}, "system": {"Driver version": "6.3"}}'
    )
    new = '{"card0": {"Card Series": "MI250X", "VRAM Total Memory (B)": "68702699520"}}'
    assert [(one.name, one.used) for one in from_rocm_smi(old)] == [
        ("AMD Instinct MI300X", 295698432)
    ]
    assert from_rocm_smi(new)[0].total == 68702699520
    listed = (
        '{"gpu_data": [{"gpu": 0, "asic": {"market_name": "MI300X"},'
        ' "vram": {"size": {"value": 196592, "unit": "MB"}}}]}'
    )
    metric = '[{"gpu": 0, "mem_usage": {"used_vram": {"value": 284, "unit": "MB"}}}]'
    assert from_amd_smi(listed, f"WARNING: not in the render group\n{metric}") == [
        Device("rocm", "MI300X", 196592 * MIB, 284 * MIB)
    ]
    unnamed = (
        'WARNING: a GPU is in a low-power state\n\n{"card1": {"Card Series": "N/A", "Card Model":'
        ' "0x744c", "VRAM Total Memory (B)": "64", "VRAM Total Used Memory (B)": "N/A",'
        ' "Unique ID": "0x136B01eaaeb0334"}, "card0": "flat"}\n'
    )
    expected = Device("rocm", "0x744c", 64, 0, "GPU-0136b01eaaeb0334")
    assert from_rocm_smi(unnamed) == [expected]


@pytest.mark.parametrize(
    "text", ["", "ERROR: nothing", "[", "[1]", '{"card0": {}}', '{"gpu_data": {}}', '[{"vram": 1}]']
)
def test_what_no_vendor_prints(text: str) -> None:
    """Unknown output gives no devices and no error."""
    assert from_rocm_smi(text) == from_amd_smi(text, text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "abcd"),
        ("", ""),
        ("-1", ""),
        ("2", "c"),
        ("3,0", "da"),
        ("1-3", "bcd"),
        ("0,9,1", "a"),
        ("GPU-b", "b"),
        ("GPU-", ""),
    ],
)
def test_devices_that_are_hidden(text: str | None, expected: str) -> None:
    """Indices, ranges, UUID prefixes; the first unknown one ends the list."""
    uuids = ["GPU-a1", "GPU-b2", "GPU-c3", "GPU-d4"]
    assert "".join(visible("abcd", text, uuids)) == expected


@dataclass
class FakeNvml:
    """A stand-in for NVML: there is no driver here."""

    devices: list[Any]

    class NVMLError(Exception):
        """NVML's exception."""

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: len(self.devices),
            "nvmlDeviceGetHandleByIndex": lambda index: self.devices[index],
            "nvmlDeviceGetName": lambda one: one.name.encode(),
            "nvmlDeviceGetUUID": lambda one: one.uuid,
            "nvmlDeviceGetMemoryInfo": lambda one: one.memory,
            "nvmlDeviceGetMigMode": lambda one: (int(bool(one.parts)), 0),
            "nvmlDeviceGetMaxMigDeviceCount": lambda one: len(one.parts),
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda one, index: one.parts[index],
        }
        if name not in answers:  # Python 3.13 reads a module's `__spec__`
            raise AttributeError(name)
        return answers[name]


def answer_for_nvml(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the driver's library with the fake."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    monkeypatch.setattr(probes, "has_nvidia_driver", lambda: True)


def gpu(name: str, uuid: str, gib: float, used: float = 0.5, parts: tuple[Any, ...] = ()) -> Any:
    """A device in NVML's terms."""
    memory = SimpleNamespace(total=int(gib * GIB), used=int(used * GIB))
    return SimpleNamespace(name=name, uuid=uuid, memory=memory, parts=parts)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["NVIDIA A100-SXM4-80GB", "part"]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["NVIDIA A100-SXM4-80GB"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-2"}, ["other part"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_nvidia(
    environment: Mapping[str, str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole GPUs; of a MIG device the first instance or the selected one."""
    parts = (gpu("part", "MIG-1", 9.5), gpu("other part", "MIG-2", 19.5))
    nvml = FakeNvml(
        [gpu("NVIDIA A100-SXM4-80GB", "GPU-1", 80), gpu("divided", "GPU-2", 80, parts=parts)]
    )
    answer_for_nvml(nvml, monkeypatch)
    assert [one.name for one in probes.nvidia(environment)] == expected


def device(name: str, gib: float, used: float = 0.5) -> Device:
    """A GPU as detected."""
    return Device("cuda", name, int(gib * GIB), int(used * GIB))


def test_a_host_with_eight_of_a_kind() -> None:
    """The profile's memory is used, not the driver's."""
    found = of_devices(HERE, [device("NVIDIA A100-SXM4-80GB", 80)] * 8)
    assert (found.accelerator.name, found.accelerators) == ("a100-80gb", 8)
    assert found.accelerator.memory == int(79.15 * GIB)
    assert (found.in_use, found.notes) == (0, ())


def test_devices_that_differ_are_merged_to_their_least() -> None:
    """With a warning; common features remain."""
    mixed = [device("NVIDIA A100-SXM4-80GB", 80), device("Tesla V100-SXM2-32GB", 32)]
    found = of_devices(HERE, mixed)
    assert found.accelerator.memory == int(31.7 * GIB)
    assert Precision.BF16 not in found.accelerator.precisions
    assert found.accelerator.compute == 125e12
    assert found.accelerator.restrictions == tuple(profile_named("v100-32gb").restrictions)
    assert found.notes == (
        "the devices differ (a100-80gb, v100-32gb): planned for the least of each fact",
    )


def test_a_device_that_no_profile_names() -> None:
    """Measured memory, conservative rates with a note, and memory in use."""
    found = of_devices(HERE, [device("NVIDIA Something New", 48, used=11)])
    assert found.accelerator.memory == int(0.97 * 48 * GIB)
    assert not found.accelerator.measured
    assert "there is no profile for 'NVIDIA Something New'" in found.notes[0]
    assert found.in_use == 11 * GIB - GIB // 2 - int(0.01 * 48 * GIB)
    assert found.notes[1] == "other processes hold 10.0 GiB of a device already"


def test_device_files_alone(tmp_path: Path) -> None:
    """Without the vendor's tool devices are counted, and planned as the smallest, with a note."""
    for name in ("davinci0", "davinci1", "davinci_manager"):
        (tmp_path / name).touch()
    found = detect({"ASCEND_RT_VISIBLE_DEVICES": "0"}, tmp_path)
    least = min(one.memory_gib for one in profiles() if one.kind == "npu")
    assert (found.accelerator.kind, found.accelerators) == ("npu", 1)
    assert (found.accelerator.memory, found.accelerator.measured) == (int(least * GIB), False)
    assert "29.5 GiB each, the smallest known" in found.notes[0]
    assert contradictions(hardware_of("ascend-910b3", found), found, 1) == []


def test_a_driver_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an NVML error device files are counted, by UUID too."""

    def refuse() -> None:
        raise FakeNvml.NVMLError

    nvml = FakeNvml([])
    nvml.nvmlInit = refuse  # type: ignore[attr-defined]
    answer_for_nvml(nvml, monkeypatch)
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    assert detect({}, tmp_path).accelerators == 2
    assert detect({"CUDA_VISIBLE_DEVICES": "GPU-1"}, tmp_path).accelerators == 1
    assert detect({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path).accelerator.kind == "cpu"


def test_devices_that_differ_and_are_listed_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML orders them by bus, CUDA by speed unless configured."""
    nvml = FakeNvml([gpu("Tesla V100-SXM2-32GB", "GPU-1", 32), gpu("NVIDIA L40S", "GPU-2", 45)])
    answer_for_nvml(nvml, monkeypatch)
    found = detect({"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "CUDA numbers devices that differ by speed" in found.notes[-1]
    by_bus = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert len(detect(by_bus).notes) == 1


def test_what_the_command_shows() -> None:
    """Detected hardware in rows; profiles as a table without the fallback ones."""
    found = of_devices(HERE, [device("NVIDIA L40S", 45)] * 2)
    rows = hardware_rows(found)
    assert rows[:2] == [
        ("found", "2 x l40s, 44.3 GiB each"),
        ("host", "4 cores, 64.0 GiB of memory"),
    ]
    lines = known_table([accelerator_of(one) for one in profiles()], ["node"]).splitlines()
    row = next(line.split() for line in lines if line.startswith("v100-32gb"))
    assert row == ["v100-32gb", "31.7", "1.2", "fp16", "fp32", "125", "900", "150"]
    assert not [line for line in lines if line.split(" ")[0] in KINDS]
    assert lines[-1] == "nodes: node"


def write(path: Path, text: str) -> None:
    """Writes a file and creates its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_limits_of_a_cgroup(tmp_path: Path) -> None:
    """Version 2: the smallest of job, step and root; `max` is no limit."""
    root, member = tmp_path / "cgroup", tmp_path / "member"
    write(member, "0::/slurm/job_1/step_0\n")
    assert host.memory(root, member) > GIB
    write(root / "slurm" / "job_1" / "memory.max", f"{GIB}\n")
    write(root / "slurm" / "job_1" / "step_0" / "memory.max", "max\n")
    write(root / "slurm" / "cpu.max", "150000 100000\n")
    write(root / "slurm" / "job_1" / "cpu.max", "max 100000\n")
    assert (host.memory(root, member), host.cores(root, member)) == (GIB, 1)
    write(root / "memory.max", f"{GIB // 2}\n")
    assert host.memory(root, member) == GIB // 2
    assert host.memory(root, tmp_path / "nothing") == GIB // 2


def test_limits_of_an_old_cgroup(tmp_path: Path) -> None:
    """Version 1: one tree for each controller or for two; -1 is no limit."""
    root, member = tmp_path / "cgroup", tmp_path / "member"
    write(member, "4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/other\n")
    write(root / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "cpu" / "cpu.cfs_quota_us", "-1\n")
    write(root / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert host.memory(root, member) > GIB
    write(root / "memory" / "job" / "memory.limit_in_bytes", f"{GIB}\n")
    write(root / "cpu,cpuacct" / "job" / "cpu.cfs_quota_us", "100000\n")
    write(root / "cpu,cpuacct" / "job" / "cpu.cfs_period_us", "100000\n")
    assert (host.memory(root, member), host.cores(root, member)) == (GIB, 1)


def tool(folder: Path, name: str, text: str) -> None:
    """A vendor's tool that prints this text."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    path.chmod(0o755)


def test_a_host_of_npus_found_by_its_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the tool on PATH to the plan's facts; an undocumented list gets a note."""
    tool(tmp_path, "npu-smi", (FIXTURES / "npu-smi" / "910b4.txt").read_text())
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = detect({}, tmp_path)
    assert (found.accelerator.name, found.accelerators, found.notes) == ("ascend-910b4", 2, ())
    assert found.accelerator.environment["DS_ACCELERATOR"] == "npu"
    found = detect({"ASCEND_RT_VISIBLE_DEVICES": "0-1"}, tmp_path)
    assert found.accelerators == 2
    assert "CANN documents numbers and commas alone" in found.notes[0]


def test_a_host_of_amds_gpus_found_by_its_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both variables apply in turn; identifiers are rocm-smi's numbers."""
    card = '{"Card Series": "AMD Instinct MI300X", "VRAM Total Memory (B)": "206141652992"'
    cards = [f'"card{one}": {card}, "Unique ID": "0x{one}"}}' for one in range(10, 13)]
    tool(tmp_path, "rocm-smi", f"{{{', '.join(cards)}}}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert detect({}, tmp_path).accelerators == 3
    listed = "GPU-0000000000000011,GPU-0000000000000012"
    environment = {"ROCR_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": "1"}
    assert [one.uuid for one in probes.amd(environment)] == ["GPU-0000000000000012"]
    assert detect(environment, tmp_path).accelerator.name == "mi300x"
