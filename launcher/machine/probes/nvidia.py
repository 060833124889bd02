"""NVIDIA's devices, through NVML (https://docs.nvidia.com/deploy/nvml-api/)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

from .device import Device, visible


def probe(environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The GPUs visible to CUDA, including MIG instances."""
    if not has_driver():
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
        devices = [_shown(pynvml, handle) for handle in whole]
        return tuple(visible(devices, listed, [device.uuid for device in devices]))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def has_driver() -> bool:
    """Whether pynvml's library exists, as importing pynvml is slow."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _shown(pynvml: Any, handle: Any) -> Device:
    """A GPU, or the first MIG instance, the only one that CUDA uses."""
    instances = list(_instances(pynvml, handle))
    return instances[0] if instances else _device(pynvml, handle)


def _device(pynvml: Any, handle: Any) -> Device:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Device(
        kind="cuda",
        name=text(pynvml.nvmlDeviceGetName(handle)),
        total=int(memory.total),
        used=int(memory.used),
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
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


def text(value: str | bytes) -> str:
    """Decodes text from NVML, bytes in older versions."""
    return value.decode() if isinstance(value, bytes) else value
