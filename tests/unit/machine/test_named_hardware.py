"""Accelerators and nodes by the names that people, drivers and clouds have for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.core.hardware import Hardware
from safe_launch.machine.named_hardware import hardware_of
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
        ("DGX H100", "h100-80gb"),
        ("p4de.24xlarge", "a100-80gb"),
        ("a2-highgpu-8g", "a100-40gb"),
        ("Standard_ND96isr_H100_v5", "h100-80gb"),
    ],
)
def test_one_device_has_the_name(name: str, expected: str) -> None:
    """As nvidia-smi, torch, npu-smi, amd-smi, clouds and people write it."""
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
    """And it is said which others have the name."""
    assert hardware_of(name, HERE).notes[0] == f"`{name}` is taken to be {note}"


def test_the_size_of_this_host_is_taken() -> None:
    """Where the host has one of them, no doubt is left."""
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
    """The few of its model, or the nearest three; another model of the family is never taken."""
    with pytest.raises(LaunchError) as caught:
        hardware_of(name, HERE)
    assert caught.value.problem == f"--hardware `{name}`: no such profile, and no .yaml file"
    assert caught.value.hint == hint
