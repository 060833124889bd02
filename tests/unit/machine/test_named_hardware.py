"""Names of accelerators and nodes used by people, drivers and clouds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.core.hardware import Hardware
from safe_launch.machine.named_hardware import hardware_of, instances
from safe_launch.machine.profiles import accelerator_of, profile_named
from support.tables import table

HERE = Hardware(accelerator_of(profile_named("cpu")), 0, 4, 64 * 2**30)


@table(
    ("name", "expected"),
    [
        ("L40S", "l40s"),
        ("RTX4090", "rtx-4090"),
        ("rtx_4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("A100-PCIE-40GB", "a100-40gb"),
        ("A100-80G", "a100-80gb"),
        ("A100 80 GB", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA H100 PCIe", "h100-80gb-pcie"),
        ("h100sxm5", "h100-80gb"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("nvidia-l4", "l4"),
        ("nvidia-tesla-t4", "t4"),
        ("Tesla P100-PCIE-16GB", "p100-16gb"),
        ("A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-96gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-96gb"),
        ("B200 192GB", "b200-180gb"),
        ("NVIDIA B300 SXM6 AC", "b300-288gb"),
        ("GB200", "gb200-186gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("MI250X 128GB", "mi250x"),
        ("AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2", "mi250x"),
        ("910B4-1", "ascend-910b4-1"),
        ("910B4 64GB", "ascend-910b4-1"),
        ("Ascend 910B3", "ascend-910b3"),
        ("Ascend910_9362", "ascend-910c"),
        ("H20-3e", "h20-3e-141gb"),
        ("NVIDIA H20-3e", "h20-3e-141gb"),
        ("H20 141GB", "h20-3e-141gb"),
        ("H20", "h20-96gb"),
        ("P100", "p100-16gb"),
        ("GH200", "gh200-96gb"),
        ("MI250", "mi250x"),
        ("DGX H100", "h100-80gb"),
        ("p4de.24xlarge", "a100-80gb"),
        ("a2-highgpu-8g", "a100-40gb"),
        ("Standard_ND96isr_H100_v5", "h100-80gb"),
    ],
)
def test_one_device_has_the_name(name: str, expected: str) -> None:
    """nvidia-smi, torch, npu-smi, amd-smi, clouds and people spell it differently."""
    found = hardware_of(name, HERE)
    assert found.accelerator.name == expected
    assert not any("is taken to be" in note for note in found.notes)


@table(
    ("name", "note"),
    [
        ("A100", "a100-40gb, the smallest; of the same name: --hardware a100-80gb"),
        ("NVIDIA A100", "a100-40gb, the smallest; of the same name: --hardware a100-80gb"),
        ("V100", "v100-16gb, the smallest; of the same name: --hardware v100-32gb"),
        ("H100", "h100-80gb; of the same name: --hardware h100-80gb-pcie"),
        (
            "Ascend910B4",
            "ascend-910b4, the smallest; of the same name: --hardware ascend-910b4-1",
        ),
        ("DGX A100", "dgx-a100-40gb, the smallest; of the same name: --hardware dgx-a100-80gb"),
    ],
)
def test_of_several_sizes_the_smallest_is_taken(name: str, note: str) -> None:
    """The other sizes are listed."""
    assert hardware_of(name, HERE).notes[0] == f"`{name}` is taken to be {note}"


def test_the_size_of_this_host_is_taken() -> None:
    """No note is needed if the host has one of them."""
    here = replace(HERE, accelerator=accelerator_of(profile_named("a100-80gb")), accelerators=2)
    found = hardware_of("A100", here)
    assert (found.accelerator.name, found.accelerators, found.notes) == ("a100-80gb", 2, ())


@table(
    ("name", "hint"),
    [
        (
            "910B",
            "name one of ascend-910b1, ascend-910b2, ascend-910b3, ascend-910b4-1, ascend-910b4",
        ),
        ("A100-64GB", "name one of a100-40gb, a100-80gb"),
        ("NVIDIA H100 NVL", "name one of h100-80gb-pcie, h100-80gb"),
        ("RTX 5090 Laptop GPU", "did you mean `rtx-5090`? Near it are `rtx-3090`, `rtx-4090`"),
        ("GB300", "did you mean `b300-288gb`? Near it are `gb200-186gb`, `b200-180gb`"),
    ],
)
def test_what_is_said_of_an_unknown_name(name: str, hint: str) -> None:
    """The sizes of its model or the nearest three are suggested, never another model."""
    with pytest.raises(LaunchError) as caught:
        hardware_of(name, HERE)
    assert caught.value.problem == f"--hardware `{name}`: no such profile, and no .yaml file"
    assert caught.value.hint == hint


@table(
    ("name", "device", "count"),
    [
        ("8xH100", "h100-80gb", 8),
        ("4x4090", "rtx-4090", 4),
        ("8 x A100 80GB", "a100-80gb", 8),
        ("2*L4", "l4", 2),
        ("4090x4", "rtx-4090", 4),
        ("8\xd7H100", "h100-80gb", 8),
        ("A100:8", "a100-40gb", 8),
        ("gpu:a100:4", "a100-40gb", 4),
        ("H100x8", "h100-80gb", 8),
        ("A100-80GB*8", "a100-80gb", 8),
        ("V100-32GB x 2", "v100-32gb", 2),
        ("16xAscend910B3", "ascend-910b3", 16),
        ("mi300x:8", "mi300x", 8),
        ("8xmi300x", "mi300x", 8),
    ],
)
def test_a_number_of_devices(name: str, device: str, count: int) -> None:
    """Spellings of people, Slurm and clouds set the count, with memory for each."""
    found = hardware_of(name, HERE)
    assert (found.accelerator.name, found.accelerators) == (device, count)
    assert found.host_memory == count * 128 * 2**30
    assert found.notes[-1].startswith("only the devices are named: ")


def test_a_number_of_devices_of_this_hosts_kind() -> None:
    """Memory and cores are this host's."""
    device = accelerator_of(profile_named("a100-80gb"))
    here = replace(HERE, accelerator=device, accelerators=8)
    found = hardware_of("4xA100-80GB", here)
    assert (found.accelerators, found.cores, found.host_memory) == (4, 4, 64 * 2**30)


@pytest.mark.parametrize("name", ["mi300x", "gb200", "b200", "h20"])
def test_a_name_that_ends_in_a_number_has_none(name: str) -> None:
    """The number belongs to the model's name."""
    assert hardware_of(name, HERE).accelerators == 8


@pytest.mark.parametrize("name", ["2xDGX H100", "p4d.24xlarge:2"])
def test_a_number_of_nodes(name: str) -> None:
    """The number of nodes is another option."""
    with pytest.raises(LaunchError) as caught:
        hardware_of(name, HERE)
    assert caught.value.hint == "--nnodes sets the number of nodes"


@table(
    ("name", "device", "count", "cores", "gib"),
    [
        ("g5.xlarge", "a10g", 1, 4, 16),
        ("g5.12xlarge", "a10g", 4, 48, 192),
        ("ml.g5.2xlarge", "a10g", 1, 8, 32),
        ("g6e.12xlarge", "l40s", 4, 48, 384),
        ("p3.8xlarge", "v100-16gb", 4, 32, 244),
        ("p6-b200.48xlarge", "b200-180gb", 8, 192, 2048),
        ("Standard_NC24ads_A100_v4", "a100-80gb", 1, 24, 220),
        ("standard_nc64as_t4_v3", "t4", 4, 64, 440),
        ("NC6s_v3", "v100-16gb", 1, 6, 112),
        ("Standard_ND96isr_H200_v5", "h200-141gb", 8, 96, 1850),
        ("g2-standard-24", "l4", 2, 24, 89),
        ("a2-highgpu-1g", "a100-40gb", 1, 12, 79),
        ("a2-megagpu-16g", "a100-40gb", 16, 96, 1266),
        ("a3-megagpu-8g", "h100-80gb", 8, 208, 1743),
    ],
)
def test_an_instance_of_a_cloud(name: str, device: str, count: int, cores: int, gib: int) -> None:
    """The whole instance is planned for, without a note."""
    found = hardware_of(name, HERE)
    assert (found.accelerator.name, found.accelerators, found.cores) == (device, count, cores)
    assert (found.host_memory, found.notes) == (gib * 2**30, ())


def test_instances_are_plausible() -> None:
    """Each has a profile, 3 GiB of memory and two threads a device; names are unique."""
    found = list(instances())
    assert len({each.name.lower() for each in found}) == len(found) > 80
    for each in found:
        assert profile_named(each.accelerator)
        assert 0 < each.accelerators <= 16, each.name
        assert 2 * each.accelerators <= each.cores <= 384, each.name
        assert 3 * each.accelerators <= each.host_memory_gib <= 4096, each.name


def test_an_instance_that_is_not_known() -> None:
    """The nearest names are suggested."""
    with pytest.raises(LaunchError) as caught:
        hardware_of("g5.3xlarge", HERE)
    assert "g5." in caught.value.hint
