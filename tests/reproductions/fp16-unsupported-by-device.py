"""DeepSpeed is asked for fp16 on a device that doesn't compute in it."""

import os
import sys

FRESH = True
RANKS = 1
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"  # a CPU without fp16, whatever it is

import deepspeed  # noqa: E402
import torch  # noqa: E402

kind = "bf16" if "--advised" in sys.argv else "fp16"
config = {
    "train_micro_batch_size_per_gpu": 1,
    kind: {"enabled": True},
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
}
model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
engine.backward(engine(torch.ones(1, 4, dtype=torch.bfloat16)).sum())
engine.step()
