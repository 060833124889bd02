"""Says which private names are missing in this environment, or there though they shouldn't be."""

from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from safe_launch.core.private_names import NAMES, PrivateName


def module_of(path: str) -> Any:
    """A module, also one that is only an attribute of another, as `torch._C._functions`."""
    outer, _, last = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ImportError:
        return getattr(module_of(outer), last) if outer else None


def is_there(name: PrivateName) -> bool:
    """Whether a module, class or library has it; an instance gets it where its class sets it."""
    if name.module.endswith(".so"):
        import torch

        library = Path(torch.__path__[0], "lib", name.module)
        return hasattr(ctypes.CDLL(str(library)), name.path)
    module = module_of(name.module)
    with suppress(AttributeError):
        functools.reduce(getattr, name.path.split("."), module)
        return True
    kind = getattr(module, name.path.partition(".")[0], None)
    sources = map(inspect.getsource, inspect.getmro(kind)[:-1]) if inspect.isclass(kind) else ()
    return any(f"self.{name.attribute} = " in source for source in sources)


differing = []
for name in NAMES:
    version = "0" if name.package == "python" else metadata.version(name.package)
    expected = SpecifierSet(name.versions).contains(version, prereleases=True)
    try:
        found = is_there(name)
    except (AttributeError, ImportError):
        found = False
    if expected != found:
        differing.append(f"{name.module}.{name.path} is {'there' if found else 'missing'}")
sys.exit("; ".join(differing) or 0)
