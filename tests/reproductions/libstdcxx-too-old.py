"""A compiled package needs a symbol version that the loaded libstdc++ doesn't have yet."""

import importlib
import subprocess
import sys
from pathlib import Path

import torch

RANKS = 1

LIBRARY = "void newer_function(void) {}"
VERSIONS = "GLIBCXX_3.4.99 { global: newer_function; };"
EXTENSION = "void newer_function(void); void *PyInit_fast(void) { newer_function(); return 0; }"


def compile_with(*arguments: object) -> None:
    """Calls the C compiler for a shared library."""
    subprocess.run(["cc", "-shared", "-fPIC", *map(str, arguments)], check=True)


folder = Path("built").absolute()
folder.mkdir()
if "--advised" not in sys.argv:
    for name, text in (("new.c", LIBRARY), ("versions", VERSIONS), ("fast.c", EXTENSION)):
        (folder / name).write_text(text)
    newer = folder / "libstdc++.so.6"
    script = f"-Wl,--version-script={folder / 'versions'}"
    compile_with("-Wl,-soname,libstdc++.so.6", script, "-o", newer, folder / "new.c")
    compile_with("-o", folder / "fast.so", folder / "fast.c", newer)
    sys.path.insert(0, str(folder))
    importlib.import_module("fast")
torch.ones(2, requires_grad=True).sum().backward()
