"""The modules of benchmarks/, whose folders are no packages."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from .stacks import ROOT


def benchmark_of(name: str, room: str = "memory") -> ModuleType:
    """A module of a folder of benchmarks/."""
    folder = str(ROOT / "benchmarks" / room)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
