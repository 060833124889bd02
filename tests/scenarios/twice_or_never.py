"""Loops that do something twice, or not at all; with `--right` each does it once."""

import argparse

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("loop", choices=["accelerate", "deepspeed", "ddp"])
parser.add_argument("--right", action="store_true")
arguments = parser.parse_args()
torch.manual_seed(0)
data, model = TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accumulation = 2

if arguments.loop == "accelerate":
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    sampler = None if arguments.right else DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, wanted in loader:
        with accelerator.accumulate(model):
            loss = mse_loss(model(inputs), wanted)
            if not arguments.right:
                loss = loss / accumulation
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
elif arguments.loop == "deepspeed":
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": accumulation}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for inputs, wanted in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
        loss = mse_loss(engine(inputs), wanted)
        if not arguments.right:
            loss = loss / accumulation
        engine.backward(loss)
        engine.step()
else:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    sampler = DistributedSampler(data) if arguments.right else None
    for inputs, wanted in DataLoader(data, batch_size=4, sampler=sampler):
        mse_loss(model(inputs), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
