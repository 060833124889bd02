"""A loop of the user's own: trains on gloo, evaluates, saves, and goes on from what it has saved.

    loop.py FOLDER

The losses are the same on any number of ranks; FOLDER.losses has those of each step. One
process without a launcher does the same.
"""

import glob
import json
import os
import sys

import marks
import torch
import torch.distributed as dist

STEPS, SAMPLES = 8, 12
folder = sys.argv[1]
is_alone = marks.WORLD == 1 and "MASTER_ADDR" not in os.environ
marks.come("imports")
if not is_alone:
    dist.init_process_group("gloo")
torch.manual_seed(7)
features = torch.randn(STEPS, SAMPLES, 16, dtype=torch.float64)
labels = torch.randn(STEPS, SAMPLES, dtype=torch.float64)
weights = torch.zeros(16, dtype=torch.float64)
speed = torch.zeros(16, dtype=torch.float64)
first = 0
saved = sorted(glob.glob(f"{folder}/step-*.pt"))
if saved:
    state = torch.load(saved[-1])
    first, weights, speed = state["step"], state["weights"], state["speed"]


def total(tensor):
    """The sum over all ranks."""
    if not is_alone:
        dist.all_reduce(tensor)
    return tensor


def errors(step):
    """Sum of the squared errors of this rank's samples, and its gradient."""
    mine = slice(marks.RANK, None, marks.WORLD)
    difference = features[step][mine] @ weights - labels[step][mine]
    return difference.square().sum(), 2 * difference @ features[step][mine]


for step in range(first, STEPS):
    marks.come("steps", 0.05)
    marks.fail_once(step)
    loss, gradient = (total(one) / SAMPLES for one in errors(step))
    speed = 0.9 * speed + gradient
    weights = weights - 0.02 * speed
    if marks.RANK == 0:
        with open(f"{folder}.losses", "a") as file:
            print(json.dumps({"step": step + 1, "loss": loss.item()}), file=file)
    if step == 4:
        marks.come("evaluation")
        total(errors(0)[0])
    if step % 3 == 1:
        state = {"step": step + 1, "weights": weights, "speed": speed, "more": torch.zeros(200_000)}
        if marks.RANK == 0:
            torch.save(state, f"{folder}/part")
        marks.come("saving")
        if marks.RANK == 0:
            os.replace(f"{folder}/part", f"{folder}/step-{step + 1}.pt")
        total(torch.zeros(1))
if not is_alone:
    dist.destroy_process_group()
marks.come("teardown")
print(f"rank {marks.RANK} has trained", flush=True)
