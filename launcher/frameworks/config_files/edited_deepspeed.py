"""Edits DeepSpeed's configuration in the form in which the script passes it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...core.settings import Setting, Value
from ...system import private_files, regular_files
from .deepspeed import Config, load, minimal, with_settings

VARIABLE = "SAFE_LAUNCH_EDITED"
"""Environment variable with the attempt's folder for edited files."""


def edited(source: object, settings: Mapping[Setting, Value]) -> object:
    """Applies the settings to a configuration; a path stays a path.

    The source is a file's path, JSON, base64 of that, or a dict. An edited file is a copy whose
    path ends like the script's; if no file can be written, the result is a dict. Without changes,
    it is the same object.

    Raises:
        ConfigError: the file doesn't exist or isn't a JSON object.
    """
    if not settings:
        return source
    config = load(source)
    changed = with_settings(config, settings)
    if changed == config:
        return source
    if not isinstance(source, str | Path):
        return changed
    text = str(source)
    if text.lstrip().startswith("{"):
        return json.dumps(changed)
    if not Path(text).is_file():
        return base64.urlsafe_b64encode(json.dumps(changed).encode()).decode()
    parts = [part for part in Path(text).parts if part not in ("/", "..")]
    return _written(Path(*parts), changed)


def new(settings: Mapping[Setting, Value]) -> object:
    """Creates a configuration for a script on the Trainer, under a conventional file name."""
    stage = settings.get(Setting.ZERO_STAGE, 0)
    return _written(Path(f"zero{stage}.json"), minimal(settings))


def _written(name: Path, config: Config) -> object:
    """Writes the file atomically, as all ranks of a node do, and returns its path."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return config
    path, content = Path(folder, name), json.dumps(config, indent=2).encode()
    with suppress(OSError):
        if regular_files.read(path) == content:
            return str(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_files.replace(path, content)
    except OSError:  # e.g. the disk is full
        return config
    return str(path)
