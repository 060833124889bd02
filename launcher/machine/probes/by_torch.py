"""Counts devices without a probe, with torch in a separate process."""

from __future__ import annotations

import subprocess
import sys

MODULES = {"gpu": "cuda", "auto": "accelerator"}
"""torch modules for torchrun's device words, if named differently."""
SECONDS = 120
"""Timeout in seconds for importing torch from a slow disk."""
COUNT = """\
import importlib, sys, torch
try:
    devices = importlib.import_module("torch." + sys.argv[1])
except ImportError:  # of a backend that is no part of torch
    devices = getattr(torch, sys.argv[1])
print("\\n", devices.device_count() if devices.is_available() else 0)
"""


def counted(word: str) -> int:
    """The number of devices for a word of torchrun's --nproc-per-node.

    Queries torch only if it may have other devices than the probes: if it is built for XPU, or a
    package brings a backend (the entry points that `import torch` loads). `auto` needs torch 2.6 or
    newer.
    """
    if word == "cpu" or not word.isidentifier() or not _has_others():
        return 0
    command = [sys.executable, "-P", "-c", COUNT, MODULES.get(word, word)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        return int(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0


def _has_others() -> bool:
    from importlib import metadata  # which few launches need

    try:
        is_for_xpu = "xpu" in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    return is_for_xpu or bool(metadata.entry_points(group="torch.backends"))
