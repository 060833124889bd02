"""A checkpoint is written from the shards of ZeRO-3: every weight in it is empty."""

import sys

import deepspeed
import torch

config = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
}
engine, _, _, _ = deepspeed.initialize(model=torch.nn.Linear(4, 1), config=config)
engine.backward(engine(torch.ones(2, 4)).sum())
engine.step()
name = f"weights-{torch.distributed.get_rank()}.pt"
if "--advised" in sys.argv:
    engine.save_16bit_model(".", name)
else:
    torch.save(engine.module.state_dict(), name)
if torch.distributed.get_rank() == 0:
    torch.nn.Linear(4, 1).load_state_dict(torch.load(name))
