"""Student and teacher go into one call of prepare under DeepSpeed."""

import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin

RANKS = 1

config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
student, teacher = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(student.parameters(), lr=0.1)
if "--advised" in sys.argv:
    student, optimizer = accelerator.prepare(student, optimizer)
    teacher = teacher.to(accelerator.device).requires_grad_(False)
else:
    student, teacher, optimizer = accelerator.prepare(student, teacher, optimizer)
batch = torch.ones(2, 4)
accelerator.backward((student(batch) - teacher(batch)).pow(2).sum())
optimizer.step()
accelerator.end_training()
