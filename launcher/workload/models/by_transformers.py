"""Determines a model's shape with the installed transformers, if no file has its weights."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ...core.model import is_described_model
from ...system import private_files, regular_files, run_directory, terminal

SECONDS = 60
"""Time limit in seconds for importing transformers and constructing the model."""
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment of the process, which needs neither a device nor the network."""


def described_by_transformers(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Describes a configuration's model (`core/model.py`); None if unknown.

    Takes seconds at first. Results are cached for the user by configuration and transformers
    version.
    """
    try:
        version = metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return None
    text = json.dumps(config, sort_keys=True)
    cached = _cache_file(hashlib.sha256(f"{version}\n{text}".encode()).hexdigest())
    if cached is not None:
        with suppress(OSError, ValueError, RecursionError):
            if (model := _checked(regular_files.read(cached))) is not None:
                return model
    terminal.reassure("transformers determines the model's size, which takes some seconds once")
    model = _by_process(text)
    if model is not None and cached is not None:
        with suppress(OSError):
            private_files.make_folders(cached.parent)
            private_files.replace(cached, json.dumps(model).encode())
    return model


def _cache_file(digest: str) -> Path | None:
    """Cache file of a result; None for a user without a home."""
    try:
        return run_directory.default_root().parent / "models" / f"{digest}.json"
    except RuntimeError:
        return None


def _by_process(config: str) -> dict[str, Any] | None:
    command = [sys.executable, "-P", "-m", "safe_launch.workload.models.on_meta"]
    with suppress(OSError, subprocess.SubprocessError, ValueError, RecursionError):
        done = subprocess.run(
            command,
            input=config,
            env={**os.environ, **QUIET},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return _checked(done.stdout)
    return None


def _checked(text: str | bytes) -> dict[str, Any] | None:
    """The description in a JSON text; None if it has another form."""
    model = json.loads(text)
    return model if isinstance(model, dict) and is_described_model(model) else None
