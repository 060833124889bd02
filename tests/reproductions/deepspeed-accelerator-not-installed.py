"""The environment asks DeepSpeed for an NPU on a machine without torch_npu."""

import os
import sys

RANKS = 1
FRESH = True

if "--advised" not in sys.argv:
    os.environ["DS_ACCELERATOR"] = "npu"  # left over from another machine's profile

import deepspeed  # noqa: E402
import torch  # noqa: E402

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True, "lr": 1e-3}},
    },
)
for _ in range(2):
    loss = engine(torch.ones(2, 4, device=engine.device)).sum()
    engine.backward(loss)
    engine.step()
