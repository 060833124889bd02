"""AMD's GPUs, from what `rocm-smi` or `amd-smi` print as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .device import Device, first_of, said, visible

MIB = 2**20
ROCM_SMI = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")
AMD_SMI = ("amd-smi", "static", "--asic", "--vram", "--json")


def probe(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The GPUs that torch on ROCm would show; a MI250X counts as two.

    ROCR_VISIBLE_DEVICES hides first, HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES) among the rest.
    """
    for command, parse in ((ROCM_SMI, from_rocm_smi), (AMD_SMI, from_amd_smi)):
        text = said(command)
        devices = [] if text is None else parse(text)
        if devices:
            first = visible(devices, environment.get("ROCR_VISIBLE_DEVICES"))
            listed = first_of(environment, "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
            return tuple(visible(first, listed))
    return ()


def _mapping(text: str) -> Any:
    try:
        return json.loads(text[text.find(text.lstrip()[:1]) :])
    except (json.JSONDecodeError, IndexError):
        return None


def from_rocm_smi(text: str) -> list[Device]:
    """The cards of `rocm-smi --json`: names under keys that changed with its versions, bytes."""
    cards = _mapping(text)
    if not isinstance(cards, dict):
        return []
    devices = []
    for key in sorted((one for one in cards if one.startswith("card")), key=_number):
        card = {name.lower(): value for name, value in cards[key].items()}
        name = next(
            (str(card[one]) for one in ("card series", "card model", "card sku") if one in card), ""
        )
        total, used = (int(card.get(f"vram total {what}memory (b)", 0)) for what in ("", "used "))
        if total:
            devices.append(Device("rocm", name, total, used))
    return devices


def _number(key: str) -> int:
    digits = key.removeprefix("card")
    return int(digits) if digits.isdecimal() else 0


def from_amd_smi(text: str) -> list[Device]:
    """The GPUs of `amd-smi static --json`: a list, under a key of its own in newer versions."""
    whole = _mapping(text)
    listed = whole.get("gpu_data") if isinstance(whole, dict) else whole
    devices = []
    for gpu in listed if isinstance(listed, list) else []:
        size = gpu.get("vram", {}).get("size", {})
        if isinstance(size, dict) and str(size.get("value", "")).isdecimal():
            name = str(gpu.get("asic", {}).get("market_name", ""))
            devices.append(Device("rocm", name, int(size["value"]) * MIB, 0))
    return devices
