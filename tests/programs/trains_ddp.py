"""A loop of the user's own on gloo: trains, evaluates and saves, each until FOLDER/PHASE is there.

    trains_ddp.py FOLDER [SECONDS]

Rank 1 takes SECONDS longer to load each batch.
"""

import io
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

folder = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
pause = float(sys.argv[2]) if len(sys.argv) > 2 and rank == 1 else 0.0


def has(phase):
    """Whether the phase is over, as rank 0 says."""
    told = [os.path.exists(f"{folder}/{phase}")]
    dist.broadcast_object_list(told)
    return told[0]


class Rows(Dataset):
    """Endless rows, from a disk that may be slow."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(pause)
        return torch.ones(4) * index, torch.ones(1)


class SlowDisk(io.BytesIO):
    """A file that is full until the phase is over."""

    def write(self, data):
        while not os.path.exists(f"{folder}/save"):
            time.sleep(0.02)
        return super().write(data)


model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
)
optimizer = torch.optim.AdamW(model.parameters())
for features, labels in DataLoader(Rows(), batch_size=2):
    torch.nn.functional.mse_loss(model(features), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    if has("train"):
        break
model.eval()
while not has("evaluate"):
    time.sleep(0.02)
if rank == 0:
    torch.save(model.state_dict(), SlowDisk())
dist.barrier()
dist.destroy_process_group()
