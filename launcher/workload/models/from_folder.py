"""Finds a model on this machine and reads its shape, without the network or its weights.

If no file has the weights' shapes, the installed transformers builds the model in a process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ...core.errors import LaunchError, reason_of
from ...core.model import Model, Weight, is_described_model
from ...core.quantities import count_of
from ...system import private_files, regular_files, run_directory, terminal
from . import stored_weights
from .from_config import UnknownShapeError, check_sizes, shape, weights_of
from .stored_weights import read_tensors, shards

SECONDS = 60
"""Time limit in seconds for importing transformers and constructing the model."""
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment of the process, which needs neither a device nor the network."""


def read_model(name_or_path: str, notes: list[str], environment: Mapping[str, str]) -> Model | None:
    """Reads a model's shape; None if this machine's files don't determine it.

    Args:
        name_or_path: a folder, or a hub name with cached files.
        notes: receives sentences on reasons or omissions.
        environment: variables that locate the caches.

    Raises:
        LaunchError: a model file is broken, so training would fail too.
    """
    try:
        named = Path.cwd() / Path(name_or_path).expanduser()
        is_cached = not named.is_dir()
        folder = _cached(name_or_path, environment) if is_cached else named
        has_config = folder is not None and (folder / "config.json").is_file()
    except (OSError, ValueError, RuntimeError) as error:  # not a valid file name
        problem = f"{name_or_path[:80]!r} can't be looked up, so the model is unknown"
        notes.append(f"{problem}: {reason_of(error)}")
        return None
    if folder is None:
        notes.append(
            f"{name_or_path} is neither a folder nor in a cache of this machine, so the size of "
            "the model isn't known before it is loaded"
        )
        return None
    if not has_config:
        notes.append(f"{folder} has no config.json, so the model's size isn't known")
        return None
    path = folder / "config.json"
    config = _config(path)
    try:
        files = shards(folder)
    except LaunchError as error:
        if not is_cached:
            raise
        notes.append(f"{error.problem}; the script will download it")
        files = []
    stored = stored_weights.weights_of(read_tensors(files), config) if files else None
    headers = f" and {count_of(len(files), 'safetensors header')}" if files else ""
    label = name_or_path if is_cached else folder.name
    return _shape(config, stored or (), str(path), f"{label}: config.json{headers}", notes)


def _shape(
    config: Mapping[str, Any],
    stored: tuple[Weight, ...],
    path: str,
    source: str,
    notes: list[str],
) -> Model | None:
    """The shape from the headers, or from the installed transformers if they don't suffice.

    Raises:
        LaunchError: a size in the configuration is invalid.
    """
    try:
        check_sizes(config, path)
        if stored:
            return shape(config, stored, path, source)
        problem = (
            f'{path}: no transformers that is installed here builds "{config.get("model_type")}", '
            "and no weights in safetensors format lie beside it, so the model's size isn't known "
            "before it is loaded"
        )
    except UnknownShapeError as error:  # a size that only its class determines
        problem = str(error)
    described = described_by_transformers(config)
    if described is not None:
        with suppress(UnknownShapeError):
            weights = stored or weights_of(described)
            return shape(described["config"], weights, path, source)
    notes.append(problem)
    return None


def _config(path: Path) -> dict[str, Any]:
    """A config.json.

    Raises:
        LaunchError: the file can't be read, or isn't a JSON object.
    """
    try:
        config = json.loads(regular_files.read(path))
    except json.JSONDecodeError as error:
        raise LaunchError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise LaunchError.because(error, f"{path} can't be read") from error
    if not isinstance(config, dict):
        raise LaunchError(f"{path}: a JSON object is expected")
    return config


def _cached(name: str, environment: Mapping[str, str]) -> Path | None:
    """The newest cached snapshot of a hub model, if any."""
    parts = name.strip("/").split("/")
    if len(parts) > 2 or not all(parts) or any(part in (".", "..") for part in parts):
        return None
    for cache in _hub_caches(environment):
        snapshots = cache / f"models--{'--'.join(parts)}" / "snapshots"
        main = snapshots.parent / "refs" / "main"
        with suppress(OSError):
            folder = snapshots / regular_files.read(main).decode(errors="replace").strip()
            if folder.is_dir() and folder != snapshots:
                return folder
        revisions = list(snapshots.iterdir()) if snapshots.is_dir() else []
        if len(revisions) == 1:
            return revisions[0]
    if len(parts) == 2:
        for cache in _modelscope_caches(environment):
            # ModelScope replaces dots with three underscores.
            for folder in (cache / name, cache / parts[0] / parts[1].replace(".", "___")):
                if (folder / "config.json").is_file():
                    return folder
    return None


def _hub_caches(environment: Mapping[str, str]) -> Iterator[Path]:
    """The cache folders of huggingface_hub (huggingface_hub/constants.py)."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"):
        if environment.get(variable):
            yield Path(environment[variable]).expanduser()
    home = environment.get("HF_HOME")
    if home:
        yield Path(home).expanduser() / "hub"
    elif environment.get("XDG_CACHE_HOME"):
        yield Path(environment["XDG_CACHE_HOME"]).expanduser() / "huggingface" / "hub"
    else:
        yield Path(environment.get("HOME", "~")).expanduser() / ".cache" / "huggingface" / "hub"


def _modelscope_caches(environment: Mapping[str, str]) -> Iterator[Path]:
    """The cache folders of modelscope (modelscope/utils/file_utils.py)."""
    home = environment.get("MODELSCOPE_CACHE")
    base = Path(environment.get("HOME", "~")).expanduser() / ".cache" / "modelscope"
    for folder in (Path(home).expanduser(),) if home else (base, base / "hub"):
        yield folder / "models"
        yield folder / "hub" / "models"
        yield folder / "hub"
        yield folder


def described_by_transformers(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Describes a configuration's model (`core/described_model.py`); None if unknown.

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
