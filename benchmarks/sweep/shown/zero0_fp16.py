"""DeepSpeed's stage 0 in fp16 takes tiny steps: deepspeed --num_gpus 1 zero0_fp16.py."""

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

get_accelerator().is_fp16_supported = lambda: True  # on a CPU, which is slow at it
for stage in (0, 1):
    model = torch.nn.Linear(1, 1, bias=False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "fp16": {"enabled": True, "initial_scale_power": 4},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    before = model.weight.item()
    engine.backward(engine(torch.ones(1, 1).half()).sum())
    engine.step()
    print(f"stage {stage}: the weight moves by {before - model.weight.item():.4f} of 1")
