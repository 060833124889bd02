"""Trains on its device and on the host's CPU, reports how it was started, and waits for a file."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

with suppress(ImportError):
    import transformers  # noqa: F401 - what a training would have its workers forked with
with suppress(ImportError):
    import deepspeed  # noqa: F401

kind, folder = sys.argv[1], Path(sys.argv[2])
rank = int(os.environ["LOCAL_RANK"])
device = torch.get_device_module(kind)
touched = device.is_initialized()
device.set_device(rank)


def losses(place: str) -> list[float]:
    """The losses of ten steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    model.to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = torch.randn(16, 64, generator=torch.Generator().manual_seed(1)).to(place)
    found = []
    for _ in range(10):
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


said = {
    "pid": os.getpid(),
    "forked": b"LOCAL_RANK=" not in Path("/proc/self/environ").read_bytes(),
    "touched": touched,
    "device": losses(f"{kind}:{rank}"),
    "cpu": losses("cpu"),
}
(folder / f"{rank}.part").write_text(json.dumps(said))
(folder / f"{rank}.part").rename(folder / f"{rank}.json")
while not (folder / "go").exists():
    time.sleep(0.05)
