"""A package's compiled part calls a function that this torch doesn't have."""

import importlib
import subprocess
import sys
from pathlib import Path

import torch

RANKS = 1

SOURCE = """
void _ZN3c1011StorageImpl12gone_since_1Ev(void);
void *PyInit_fast_attention(void) { _ZN3c1011StorageImpl12gone_since_1Ev(); return 0; }
"""

folder = Path("site-packages").absolute()
folder.mkdir()
if "--advised" not in sys.argv:
    source, library = folder / "fast.c", folder / "fast_attention.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    sys.path.insert(0, str(folder))
    importlib.import_module("fast_attention")
query = torch.ones(1, 1, 4, 4, requires_grad=True)
torch.nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
