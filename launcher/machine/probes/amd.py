"""AMD's GPUs, from the JSON of `rocm-smi` or `amd-smi`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.units import MIB
from .device import Device, first_of, output_of, visible

ROCM_SMI = ("rocm-smi", "--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--json")
AMD_SMI = (
    ("amd-smi", "static", "--asic", "--vram", "--json"),
    ("amd-smi", "metric", "--mem-usage", "--json"),
)
NAMES = ("card series", "card model", "card sku")


def probe(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The GPUs visible to torch on ROCm; an MI250X counts as two.

    ROCR_VISIBLE_DEVICES is applied first, then HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES).
    """
    devices = from_rocm_smi(output_of(ROCM_SMI) or "")
    if not devices:
        static, metric = (output_of(command) or "" for command in AMD_SMI)
        devices = from_amd_smi(static, metric)
    listed = environment.get("ROCR_VISIBLE_DEVICES")
    first = visible(devices, listed, [device.uuid for device in devices])
    listed = first_of(environment, "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
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
        name = next((card[name] for name in NAMES if card.get(name, "N/A") != "N/A"), "")
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
