"""Each rank gathers the predictions of its own batch, and the batches differ in length."""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(4, 1))
batch = torch.ones(2 + 100 * accelerator.process_index, 4)
predictions = model(batch).detach()
if "--advised" in sys.argv:
    predictions = accelerator.pad_across_processes(predictions, dim=0)
accelerator.gather(predictions)
accelerator.wait_for_everyone()
dist.destroy_process_group()
