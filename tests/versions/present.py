"""Says which private names are missing in this environment, or there though they shouldn't be."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import sys
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet
from safe_launch.core.private_names import NAMES, MissingNameError, PrivateName


def is_there(name: PrivateName) -> bool:
    """Whether a module, class or library has it; an instance gets it where its class sets it."""
    if name.module.endswith(".so"):
        import torch

        library = Path(torch.__path__[0], "lib", name.module)
        return hasattr(ctypes.CDLL(str(library)), name.path)
    try:
        name.found()
    except MissingNameError:
        kind = importlib.import_module(name.module) if "." in name.path else None
        kind = getattr(kind, name.path.partition(".")[0], None)
        sources = map(inspect.getsource, inspect.getmro(kind)[:-1]) if kind is not None else ()
        return any(f"self.{name.attribute} = " in source for source in sources)
    return True


differing = []
for name in NAMES:
    version = "0" if name.package == "python" else metadata.version(name.package)
    expected = SpecifierSet(name.versions).contains(version, prereleases=True)
    try:
        found = is_there(name)
    except ImportError:
        found = False
    if expected != found:
        differing.append(f"{name.module}.{name.path} is {'there' if found else 'missing'}")
sys.exit("; ".join(differing) or 0)
