"""This host's devices, from each vendor's tool, without torch.

A probe returns a `Device` for each of its vendor's devices that the job may use; none without the
vendor's library or command.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..core.quantities import MIB

Kind = TypeVar("Kind")
SECONDS = 10
"""Timeout in seconds for a vendor's tool, as a driver may hang."""
ROCM_SMI = ("rocm-smi", "--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--json")
AMD_SMI = (
    ("amd-smi", "static", "--asic", "--vram", "--json"),
    ("amd-smi", "metric", "--mem-usage", "--json"),
)
AMD_NAMES = ("card series", "card model", "card sku")
_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Device:
    """A device.

    Attributes:
        kind: cuda, npu or rocm.
        name: its name in the vendor's tool.
        total: bytes of memory in the tool.
        used: bytes in use, including the driver's.
        uuid: its identifier; empty if unknown.
    """

    kind: str
    name: str
    total: int
    used: int
    uuid: str = ""


def visible(devices: Sequence[Kind], text: str | None, uuids: Sequence[str] = ()) -> list[Kind]:
    """The devices selected by a `*_VISIBLE_DEVICES` variable.

    Like drivers, accepts indices, ranges (Ascend), or prefixes of identifiers, up to the first
    unknown item; an empty list hides all.
    """
    if text is None:
        return list(devices)
    chosen: list[Kind] = []
    for part in (item.strip() for item in text.split(",")):
        first, dash, last = part.partition("-")
        if part.isdecimal() and int(part) < len(devices):
            chosen.append(devices[int(part)])
        elif dash and first.isdecimal() and last.isdecimal() and int(last) < len(devices):
            chosen += devices[int(first) : int(last) + 1]
        else:
            named = [
                device
                for device, uuid in zip(devices, uuids, strict=False)
                if uuid.startswith(part)
            ]
            if not part or len(named) != 1:
                break
            chosen += named
    return chosen


def output_of(command: Sequence[str]) -> str | None:
    """Runs a vendor's tool and returns its output; None if missing, failing or hanging."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def nvidia(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """NVIDIA's GPUs that CUDA sees, including MIG instances, from NVML.

    https://docs.nvidia.com/deploy/nvml-api/
    """
    if not has_nvidia_driver():
        return ()
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        whole = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        listed = environment.get("CUDA_VISIBLE_DEVICES")
        if listed is not None and listed.strip().startswith("MIG-"):
            instances = [instance for handle in whole for instance in _instances(pynvml, handle)]
            shown = visible(instances, listed, [instance.uuid for instance in instances])
            return tuple(shown[:1])  # CUDA uses only the first instance
        devices = [_nvidia_device(pynvml, handle) for handle in whole]
        return tuple(visible(devices, listed, [device.uuid for device in devices]))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def has_nvidia_driver() -> bool:
    """Whether pynvml's library exists, as importing pynvml is slow."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _nvidia_device(pynvml: Any, handle: Any) -> Device:
    """A GPU, or the first MIG instance, the only one that CUDA uses."""
    instances = list(_instances(pynvml, handle))
    return instances[0] if instances else _device(pynvml, handle)


def _device(pynvml: Any, handle: Any) -> Device:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Device(
        kind="cuda",
        name=nvml_text(pynvml.nvmlDeviceGetName(handle)),
        total=int(memory.total),
        used=int(memory.used),
        uuid=nvml_text(pynvml.nvmlDeviceGetUUID(handle)),
    )


def _instances(pynvml: Any, handle: Any) -> Iterator[Device]:
    """The MIG instances of a GPU; empty without MIG."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except pynvml.NVMLError:
        return
    for index in range(most):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            yield _device(pynvml, instance)
        except pynvml.NVMLError:
            continue


def nvml_text(value: str | bytes) -> str:
    """Decodes text from NVML, bytes in older versions."""
    return value.decode() if isinstance(value, bytes) else value


def ascend(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """Huawei's NPUs that torch_npu sees, from `npu-smi info`; a 910C counts as two.

    The variable counts devices in the order of the table, not by the numbers in it.
    """
    text = output_of(("npu-smi", "info"))
    if text is None:
        return ()
    return tuple(visible(from_npu_smi(text), environment.get("ASCEND_RT_VISIBLE_DEVICES")))


def from_npu_smi(text: str) -> list[Device]:
    """Parses a table of `npu-smi info`.

    The last pair of numbers of a chip's use is the memory in MiB: that of the HBM, if there is any;
    the pair before it is the host's part of a 910A and 0 / 0 on newer chips.
    """
    sizes = ((name, pairs[-1]) for name, use in npu_chips(text) if (pairs := _PAIR.findall(use)))
    return [Device("npu", name, int(total) * MIB, int(used) * MIB) for name, (used, total) in sizes]


def npu_chips(table: str) -> Iterator[tuple[str, str]]:
    """The name and the use of each chip in a table of any version and width.

    Each chip has two lines of three cells: number and name first, then the chip's number, sometimes
    with a physical id, its bus and its use. Versions before 21 print no pair of numbers in the
    first line. Processes have more cells.
    """
    name = ""
    for line in table.splitlines():
        cells = line.strip().strip("|").split("|")
        words = cells[0].split()
        if len(cells) != 3 or not words or not words[0].isdecimal():
            continue
        if not all(word.isdecimal() for word in words):
            name = " ".join(words[1:])
        elif name:
            yield name, cells[2].strip()
            name = ""


def amd(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """AMD's GPUs that torch sees on ROCm, from `rocm-smi` or `amd-smi`; an MI250X counts as two.

    ROCR_VISIBLE_DEVICES is applied first, then HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES).
    """
    devices = from_rocm_smi(output_of(ROCM_SMI) or "")
    if not devices:
        static, metric = (output_of(command) or "" for command in AMD_SMI)
        devices = from_amd_smi(static, metric)
    listed = environment.get("ROCR_VISIBLE_DEVICES")
    first = visible(devices, listed, [device.uuid for device in devices])
    listed = environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES"))
    return tuple(visible(first, listed, [device.uuid for device in first]))


def _document(text: str) -> Any:
    """Parses the JSON in a tool's output, ignoring warnings around it."""
    for start in re.finditer(r"^[\[{]", text, re.MULTILINE):
        try:
            return json.JSONDecoder().raw_decode(text, start.start())[0]
        except json.JSONDecodeError:
            continue
    return None


def _whole(value: object) -> int:
    """Parses an integer; 0 for `N/A`."""
    text = str(value)
    return int(text) if text.isdecimal() else 0


def from_rocm_smi(text: str) -> list[Device]:
    """Parses `rocm-smi --json`, whose keys of names vary between versions."""
    cards = _document(text)
    if not isinstance(cards, dict):
        return []
    devices = []
    for key in sorted(cards, key=lambda card: _whole(card.removeprefix("card"))):
        if not key.startswith("card") or not isinstance(cards[key], dict):
            continue
        card = {name.lower(): str(value) for name, value in cards[key].items()}
        name = next((card[name] for name in AMD_NAMES if card.get(name, "N/A") != "N/A"), "")
        total, used = (_whole(card.get(f"vram total {what}memory (b)")) for what in ("", "used "))
        if total:
            devices.append(Device("rocm", name, total, used, _uuid(card.get("unique id", ""))))
    return devices


def _uuid(number: str) -> str:
    """A card's identifier for ROCR_VISIBLE_DEVICES: 16 digits, without 0x."""
    return f"GPU-{number[2:].lower().zfill(16)}" if number.startswith("0x") else ""


def from_amd_smi(static: str, metric: str = "") -> list[Device]:
    """Parses `amd-smi static --json`, with used memory from `amd-smi metric --json`."""
    in_use = {gpu.get("gpu"): _mebibytes(gpu, "mem_usage", "used_vram") for gpu in _gpus(metric)}
    devices = []
    for gpu in _gpus(static):
        asic = gpu.get("asic")
        name = str(asic.get("market_name", "")) if isinstance(asic, dict) else ""
        if total := _mebibytes(gpu, "vram", "size"):
            devices.append(Device("rocm", name, total, in_use.get(gpu.get("gpu"), 0)))
    return devices


def _gpus(text: str) -> Iterator[dict[str, Any]]:
    """The GPUs in amd-smi's JSON: a list, in newer versions under a key."""
    whole = _document(text)
    listed = whole.get("gpu_data") if isinstance(whole, dict) else whole
    for gpu in listed if isinstance(listed, list) else ():
        if isinstance(gpu, dict):
            yield gpu


def _mebibytes(gpu: dict[str, Any], section: str, key: str) -> int:
    """Converts `{"value": 196592, "unit": "MB"}`, in MiB, to bytes; 0 if missing."""
    values = gpu.get(section)
    size = values.get(key) if isinstance(values, dict) else None
    return _whole(size.get("value")) * MIB if isinstance(size, dict) else 0
