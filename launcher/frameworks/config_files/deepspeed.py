"""DeepSpeed's JSON configuration: reading it, and editing a copy in the form of the original."""

from __future__ import annotations

import base64
import binascii
import copy
import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.choices import Offload
from ...core.errors import reason_of
from ...core.plain_json import parsed
from ...core.secrets import in_mapping
from ...core.settings import BATCH, Setting, Value
from ...system import private_files, redaction, regular_files

Config = dict[str, Any]

OFFLOADS = {
    (False, False): Offload.NONE,
    (True, False): Offload.OPTIMIZER,
    (True, True): Offload.OPTIMIZER_AND_PARAMETERS,
}
EDITED = "SAFE_LAUNCH_EDITED"
"""Environment variable with the attempt's folder for edited files."""


class ConfigError(ValueError):
    """A configuration that DeepSpeed can't read either; the message has place and reason."""


def load(source: object) -> Config:
    """Copies a configuration from a file, a JSON text, base64 of one, or a dict.

    Raises:
        ConfigError: the file doesn't exist or isn't a JSON object.
    """
    if isinstance(source, Mapping):
        return copy.deepcopy(dict(source))
    if not isinstance(source, str | Path):
        raise ConfigError(f"a DeepSpeed configuration is a path or a dict, not {source!r}")
    name, text = str(source), ""
    if name.lstrip().startswith("{"):
        name, text = "the JSON given for DeepSpeed", name
    else:
        text = _file_or_base64(name)
    try:
        config = parsed(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        config = _hjson(text)
        if config is None:
            raise ConfigError(f"{name}:{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: {reason_of(error)}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{name}: a JSON object is expected, not {type(config).__name__}")
    redaction.learn(in_mapping(config))
    return config


def _hjson(text: str) -> object:
    """Parses Hjson, as DeepSpeed does (comments, trailing commas); None if invalid.

    DeepSpeed depends on the package (deepspeed/runtime/config.py, `DeepSpeedConfig.__init__`).
    """
    try:
        import hjson
    except ImportError:
        return None
    try:
        return hjson.loads(text, object_pairs_hook=_unique_keys)
    except Exception:  # not only its documented errors, e.g. OverflowError for 1e999
        return None


def _file_or_base64(name: str) -> str:
    """The text of a file; if there is no such file, the name decoded as base64."""
    try:
        return regular_files.read_text(Path(name))
    except (OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise ConfigError(f"{name}: can't be read: {reason_of(error)}") from error
    try:
        return base64.urlsafe_b64decode(name).decode("utf-8")
    except (binascii.Error, ValueError):
        raise ConfigError(f"{name}: no such DeepSpeed configuration file") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object; refuses duplicate keys, like DeepSpeed."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key `{key}` is given twice")
        members[key] = value
    return members


def section(config: Config, name: str) -> Config:
    """A section of the configuration; empty if absent or not a mapping."""
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def offload_of(config: Config) -> Offload:
    """The states that a configuration keeps in host memory."""
    zero = section(config, "zero_optimization")
    held = tuple(
        section(zero, name).get("device", "none") not in (None, "none")
        for name in ("offload_optimizer", "offload_param")
    )
    return OFFLOADS.get((held[0], held[1]), Offload.OPTIMIZER_AND_PARAMETERS)


def _set_offload(config: Config, offload: Offload) -> None:
    """Adds or removes the two offload sections, keeping their contents.

    Pins memory, as DeepSpeed's examples do; keeps a section's swapping to disk (NVMe).
    """
    zero = config["zero_optimization"] = section(config, "zero_optimization")
    for name, held in (
        ("offload_optimizer", offload is not Offload.NONE),
        ("offload_param", offload is Offload.OPTIMIZER_AND_PARAMETERS),
    ):
        present = section(zero, name)
        if not held:
            zero.pop(name, None)
        elif present.get("device", "none") in (None, "none"):
            zero[name] = {"pin_memory": True, **present, "device": "cpu"}


def _minimal(settings: Mapping[Setting, Value]) -> Config:
    """Creates a configuration for a script on Hugging Face's Trainer without one.

    "auto" is filled in by transformers from its own arguments (integrations/deepspeed.py).
    """
    buckets = {
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    config: Config = {
        "zero_optimization": {"stage": 0, **buckets},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
    }
    return with_settings(config, settings)


def with_settings(config: Config, settings: Mapping[Setting, Value]) -> Config:
    """Copies the configuration with the settings, without keys that only another stage allows.

    `offload_param` requires stage 3 (`deepspeed/runtime/zero/config.py`); the other `stage3_*` keys
    are ignored below stage 3 and kept. `train_batch_size` is kept, as micro batch and accumulation
    only change so that it stays the same. An "auto" is kept if the framework fills it in.
    """
    edited = copy.deepcopy(config)
    if Setting.ZERO_STAGE in settings:
        zero = edited["zero_optimization"] = section(edited, "zero_optimization")
        zero["stage"] = settings[Setting.ZERO_STAGE]
        if zero["stage"] != 3:
            zero.pop("offload_param", None)
    if Setting.OFFLOAD in settings:
        _set_offload(edited, Offload(str(settings[Setting.OFFLOAD])))
    for setting in BATCH:
        key = setting.row.deepspeed
        if setting in settings and edited.get(key) != "auto":
            edited[key] = settings[setting]
    return edited


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
    return _written(Path(f"zero{stage}.json"), _minimal(settings))


def _written(name: Path, config: Config) -> object:
    """Writes the file atomically, as all ranks of a node do, and returns its path."""
    folder = os.environ.get(EDITED)
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
