"""The modules of benchmarks/memory, which compare the memory model with what was measured."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from .stacks import ROOT


def benchmark_of(name: str) -> ModuleType:
    """A module of benchmarks/memory."""
    folder = str(ROOT / "benchmarks" / "memory")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
