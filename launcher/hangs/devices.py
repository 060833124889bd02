"""Utilization of the ranks' devices, from vendors' tools."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..machine.probes import has_nvidia_driver, npu_chips, nvml_text, output_of, visible

_USE = re.compile(r"^(\d+)(?:\.\d+)?\s")
"""The first number of a chip's last cell in `npu-smi info`: AICore(%)."""


def utilization(pids: Sequence[int]) -> Mapping[int, float]:
    """Utilization of each rank's device, from 0 to 1, by process id, with ids in rank order."""
    with suppress(Exception):  # a driver in trouble may raise anything
        return _nvidia(pids) or _ascend(pids)
    return {}


def _nvidia(pids: Sequence[int]) -> dict[int, float]:
    """Utilization from NVML's list of processes, which may be empty in a container."""
    if not has_nvidia_driver():
        return {}
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        users = {
            process.pid: handle
            for handle in handles
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        matches = {pid: users[pid] for pid in pids if pid in users}
        uuids = [nvml_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        shown = visible(handles, os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
        chosen = matches or _in_order(pids, shown)
        return {
            pid: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            for pid, handle in chosen.items()
        }
    finally:
        pynvml.nvmlShutdown()


def _ascend(pids: Sequence[int]) -> dict[int, float]:
    uses = list(of_npu_smi(output_of(("npu-smi", "info")) or ""))
    return _in_order(pids, visible(uses, os.environ.get("ASCEND_RT_VISIBLE_DEVICES")))


def of_npu_smi(table: str) -> Iterator[float]:
    """Utilization of each chip in the table of `npu-smi info`, from 0 to 1."""
    matches = (_USE.match(use) for _, use in npu_chips(table))
    yield from (int(match[1]) / 100 for match in matches if match)


def _in_order(pids: Sequence[int], devices: Sequence[Any]) -> dict[int, Any]:
    """Assigns devices to ranks in order, if there is one per rank."""
    return dict(zip(pids, devices, strict=True)) if len(pids) == len(devices) else {}
