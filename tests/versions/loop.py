"""A loop of the user's own on two ranks under DDP, as on any torch; it may be ended.

    loop.py [--lora] [--is killed|waiting FOLDER] [--loss_file FILE]

--lora trains adapters of peft's in a frozen network. In its third step rank 1 kills itself
(`killed`), or all ranks leave a file in the folder and go on until they are stopped (`waiting`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SIZE, BATCH, STEPS = 16, 8, 12

parser = argparse.ArgumentParser()
parser.add_argument("--lora", action="store_true")
parser.add_argument("--is", dest="end", nargs=2, default=("", ""))
parser.add_argument("--loss_file")
options = parser.parse_args()
end, folder = options.end

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model: torch.nn.Module = torch.nn.Sequential(
    torch.nn.Linear(SIZE, SIZE), torch.nn.GELU(), torch.nn.Linear(SIZE, 1)
)
if options.lora:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=4, target_modules=["0", "2"], lora_dropout=0.0))
wrapped = DistributedDataParallel(model)
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=5e-3)
random = torch.Generator().manual_seed(3)
losses = []
while end == "waiting" or len(losses) < STEPS:
    inputs = torch.randn(BATCH, SIZE, generator=random)[rank::world]
    loss = torch.nn.functional.mse_loss(wrapped(inputs), inputs.sin().sum(dim=1, keepdim=True))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    whole = loss.detach().clone()
    dist.all_reduce(whole)
    losses.append(whole.item() / world)
    if len(losses) == 3 and end:
        Path(folder, f"ready-{rank}").touch()
        if end == "killed" and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
if rank == 0 and options.loss_file:
    Path(options.loss_file).write_text(json.dumps(losses))
dist.destroy_process_group()
