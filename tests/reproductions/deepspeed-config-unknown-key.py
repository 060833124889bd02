"""The DeepSpeed JSON has a key where DeepSpeed knows none of that name."""

import sys

import deepspeed
import torch

RANKS = 1

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_optimization": {"stage": 0, "gradient_clipping": 1.0},
}
if "--advised" in sys.argv:
    CONFIG["gradient_clipping"] = CONFIG["zero_optimization"].pop("gradient_clipping")

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config=CONFIG, dist_init_required=True
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
