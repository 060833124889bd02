"""A run that DeepSpeed saved with two ranks is resumed with one."""

import multiprocessing
import os
import sys

import deepspeed
import torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
}


def train(resumes: bool) -> None:
    """A step, after the checkpoint is loaded where there is one."""
    model = torch.nn.Linear(4, 1)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=CONFIG
    )
    if resumes:
        engine.load_checkpoint("checkpoints")
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()
    if not resumes:
        engine.save_checkpoint("checkpoints")


first = multiprocessing.get_context("fork").Process(target=train, args=(False,))
first.start()
first.join()
if "--advised" not in sys.argv:
    if os.environ["RANK"] == "1":
        sys.exit()
    os.environ["WORLD_SIZE"] = "1"
train(True)
