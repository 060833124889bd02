"""The DeepSpeed JSON has a comma too many."""

import sys
from pathlib import Path

import deepspeed
import torch

RANKS = 1

TEXT = """{
  "train_micro_batch_size_per_gpu": 2,,
  "optimizer": {"type": "SGD", "params": {"lr": 0.1}}
}"""
if "--advised" in sys.argv:
    TEXT = TEXT.replace(",,", ",")
Path("ds.json").write_text(TEXT)

model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), config="ds.json", dist_init_required=True
)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
deepspeed.comm.destroy_process_group()
