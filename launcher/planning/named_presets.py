"""Settings from named presets, `presets/*.yaml`, and `--set`; the engine that a device requires."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..core.choices import Engine, Framework, Precision, Units
from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.nearest import near
from ..core.settings import (
    OF_DDP,
    OF_DEEPSPEED,
    Fact,
    Setting,
    parse_value,
    range_of,
)
from ..core.workload import Known, Origin, Statement, Workload
from ..system.regular_files import text_of
from ..system.typed_files import DocumentError, check_depth, line_of
from .estimates.versions import is_at_least

FUNCTION = re.compile(r"\$\{.*:", re.DOTALL)
"""A call of an OmegaConf function, such as `${oc.env:NAME}`, in any spelling."""
FSDP_NEEDS = {"accelerate": (1, 6), "torch": (2, 6)}
"""The first versions with FSDP2 (accelerate/utils/constants.py, FSDP2_PYTORCH_VERSION)."""
WITHOUT_EFFECT = (
    "FSDP has no effect here: on a CPU accelerate trains with DDP, and every rank holds "
    "all (safe-launch explain fsdp-trains-ddp-on-cpu)"
)


def names() -> list[str]:
    """The names of the shipped presets."""
    return sorted(path.stem for path in _root().glob("*.yaml"))


def _root() -> Path:
    return Path(str(files("safe_launch.presets")))


def wanted(name: str | None, overrides: Sequence[str]) -> MappingProxyType[Setting, Known]:
    """Settings from a preset (a name or a file) and `key=value` pairs.

    The pairs override the preset. `${...}` in either refers only to keys of the result, never to
    environment variables, as presets may come from others.

    Raises:
        LaunchError: the preset doesn't exist, or a key or a value is invalid.
    """
    if name is None and not overrides:
        return MappingProxyType({})
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    path = _path(name) if name is not None else None
    text = "" if path is None else text_of(path)
    try:
        check_depth(text)
        whole = OmegaConf.create(text or "{}")
        by_set = OmegaConf.from_dotlist(list(overrides))
        for part in (whole, by_set):
            values: Any = OmegaConf.to_container(part)
            if any(FUNCTION.search(str(values[key])) for key in values):
                raise ValueError("`${function:...}` isn't evaluated, only `${key}`")
        plain: Any = OmegaConf.to_container(OmegaConf.merge(whole, by_set), resolve=True)
        set_keys = set(by_set)
    except (OmegaConfBaseException, ValueError) as error:
        raise LaunchError.because(error, str(path or "--set")) from error
    except Exception as error:  # PyYAML's own
        raise LaunchError.because(error, f"{path or '--set'}: not YAML") from error
    result = {}
    for key, value in plain.items():
        source = f"--set {key}" if key in set_keys else f"--preset {name}"
        try:
            setting = Setting(str(key))
            result[setting] = Known(parse_value(setting, value), Origin.FLAG, source)
        except ValueError as error:
            known = str(key) in list(Setting)
            problem = str(error) if known else f"no setting `{key}`"
            hint = "" if known else near(key, list(Setting))
            if path is None or key in set_keys:
                raise LaunchError(f"--set: {problem}", hint) from None
            raise DocumentError(path, line_of(str(key), text, 1), problem, hint) from None
        if type(value) is int and value not in range_of(setting):
            raise LaunchError(f"{source}: {setting.value} can't be {value}")
    return MappingProxyType(result)


def with_wanted(workload: Workload, wanted: Mapping[Setting, Known]) -> Workload:
    """The workload with the launcher's own options.

    A script on Hugging Face's Trainer with DDP can be switched to DeepSpeed or FSDP2.

    Raises:
        LaunchError: the script can't train with these settings.
    """
    reshard = wanted.get(Setting.RESHARD_AFTER_FORWARD)
    if reshard is not None and workload.engine is not Engine.FSDP:
        return _with_fsdp(workload, wanted, reshard)
    stage = wanted.get(Setting.ZERO_STAGE)
    if stage is None or workload.engine in (None, Engine.DEEPSPEED):
        return replace(workload, wanted=wanted)
    if stage.value == 0:
        kept = {setting: known for setting, known in wanted.items() if setting not in OF_DEEPSPEED}
        return replace(workload, wanted=MappingProxyType(kept))
    _check_switchable(workload, stage.source, "DeepSpeed")
    if "deepspeed" not in workload.versions:
        raise LaunchError(f"{stage.source}: deepspeed isn't installed")
    statements = (
        (Fact.ENGINE, Known(Engine.DEEPSPEED.value, Origin.LESSON, stage.source)),
        (Fact.AUTO_BUCKETS, Known(True, Origin.LESSON, stage.source)),
    )
    return replace(workload.without(OF_DDP), wanted=wanted).informed(statements)


def _with_fsdp(workload: Workload, wanted: Mapping[Setting, Known], by: Known) -> Workload:
    """The workload with FSDP2 instead of DDP, through accelerate's variables.

    Raises:
        LaunchError: the script doesn't use accelerate's engine, or uses another engine.
    """
    _check_switchable(workload, by.source, "FSDP")
    too_old = [
        name for name, least in FSDP_NEEDS.items() if not is_at_least(workload, name, *least)
    ]
    if too_old:
        least = ", ".join(f"{name} {'.'.join(map(str, FSDP_NEEDS[name]))}" for name in too_old)
        raise LaunchError(f"{by.source}: FSDP2 needs {least} or newer")
    statements: list[Statement] = [
        (Fact.ENGINE, Known(Engine.FSDP.value, Origin.LESSON, by.source)),
        (Fact.FSDP_VERSION, Known(2, Origin.LESSON, by.source)),
        (Fact.FSDP_UNITS, Known(Units.LAYERS.value, Origin.LESSON, by.source)),
    ]
    if workload.value(Setting.PRECISION) not in (None, Precision.FP32):
        masters = Known(Precision.FP32.value, Origin.LESSON, by.source)
        statements.append((Fact.MASTER_PRECISION, masters))
    return replace(workload.without(OF_DDP), wanted=wanted).informed(statements)


def _check_switchable(workload: Workload, source: str, engine: str) -> None:
    """Checks that the script can train with an engine of the launcher's choice.

    Raises:
        LaunchError: it doesn't use the Trainer, or uses another engine than DDP.
    """
    if workload.framework is not Framework.TRANSFORMERS or workload.engine is not Engine.DDP:
        present = workload.engine or "its own loop"
        problem = f"{source}: the script trains with {present}, not {engine}"
        hint = f"only scripts that use Hugging Face's Trainer can be switched to {engine}"
        raise LaunchError(problem, hint)


def _path(name: str) -> Path:
    """The file of a preset."""
    is_file = os.path.isfile(name)  # noqa: PTH113 - pathlib's raises of a name that is too long
    if name.endswith((".yaml", ".yml")):
        if not is_file:
            raise LaunchError(f"--preset `{name}`: no such file")
        return Path(name)
    if name not in names():
        if is_file:
            problem = f"--preset `{name}`: the name of a preset file ends in .yaml"
            raise LaunchError(problem, f"if it is YAML, rename it: {name}.yaml")
        raise LaunchError(f"there is no preset `{name}`", near(name, names()))
    return _root() / f"{name}.yaml"


def on_device(workload: Workload, hardware: Hardware) -> Workload:
    """The workload with the engine accelerate uses on the device.

    accelerate enables FSDP on several accelerators but not on CPUs (accelerate/state.py,
    `AcceleratorState.__init__`, 1.6 to 1.15).
    """
    stated = workload.known.get(Fact.ENGINE)
    by_accelerate = workload.framework is not Framework.NONE
    is_changed = by_accelerate and hardware.accelerator.kind == "cpu"
    if stated is None or workload.engine is not Engine.FSDP or not is_changed:
        return workload
    engine = Known(Engine.DDP.value, stated.origin, f"{stated.source}, on a CPU")
    without_fsdp = workload.without((Setting.RESHARD_AFTER_FORWARD, Setting.OFFLOAD))
    informed = without_fsdp.informed([(Fact.ENGINE, engine)])
    return replace(informed, notes=(*workload.notes, WITHOUT_EFFECT))


def check(wanted: Mapping[Setting, Known], hardware: Hardware) -> None:
    """Checks that the device supports the launcher's options.

    Raises:
        LaunchError: FSDP on a CPU.
    """
    reshard = wanted.get(Setting.RESHARD_AFTER_FORWARD)
    if reshard is not None and hardware.accelerator.kind == "cpu":
        problem = f"{reshard.source}: accelerate trains with FSDP on accelerators alone"
        raise LaunchError(problem, "on CPUs use --preset zero3, or DDP")
