"""DeepSpeed's stage 2 trains on the last micro batch: torchrun --nproc-per-node 2 FILE."""

import deepspeed
import torch

deepspeed.init_distributed("gloo")
for stage in (1, 2):
    model = torch.nn.Linear(8, 8, bias=False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    before = model.weight[0, 0].item()
    for gradient in (1.0, 10.0, 100.0, 1000.0):
        engine.backward(engine(torch.full((1, 8), gradient)).sum())
        engine.step()
    if torch.distributed.get_rank() == 0:
        moved = before - model.weight[0, 0].item()
        print(f"stage {stage}: the weight moves by {moved:.2f}, of 277.75")
