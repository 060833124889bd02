"""Reads the measurements of `scripts/sweep`: `presets/sweep.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from .proven import Sweep


@cache
def shipped_sweeps() -> Mapping[str, Sweep]:
    """The measurements, by library."""
    text = (Path(str(files("safe_launch.presets"))) / "sweep.json").read_text("utf-8")
    return MappingProxyType(
        {
            library: Sweep(tuple(sweep["versions"]), sweep["cells"])
            for library, sweep in json.loads(text).items()
        }
    )
