"""A build that was killed has left an empty library in the cache of extensions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

RANKS = 1
STACKS = ("current",)  # torch loads it, which is the same in both
SECONDS = 240

BUILD = "from deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load()"

if "--advised" not in sys.argv:
    subprocess.run([sys.executable, "-c", BUILD], check=True)
    built = os.environ.get("TORCH_EXTENSIONS_DIR", Path.home() / ".cache" / "torch_extensions")
    cache = Path("torch_extensions").absolute()
    shutil.copytree(built, cache, ignore=shutil.ignore_patterns("lock"))
    os.environ["TORCH_EXTENSIONS_DIR"] = str(cache)
    for library in cache.rglob("cpu_adam.so"):
        library.write_bytes(b"")
model = torch.nn.Linear(4, 4)
optimizer = DeepSpeedCPUAdam(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
