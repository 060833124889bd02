"""A loop of one's own over torch's `fully_shard`, layer by layer, as its documentation has it."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Net(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.head(hidden)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--loss_file", type=Path, required=True)
    parser.add_argument(
        "--keep", action="store_true", help="keep parameters after the forward pass"
    )
    parser.add_argument("--early", action="store_true", help="make the optimizer too early")
    parser.add_argument("--meta", action="store_true", help="draw weights when they are sharded")
    parser.add_argument("--moved", action="store_true", help="move the model away between steps")
    args = parser.parse_args()
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    dist.init_process_group(dist.get_default_backend_for_device(device))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    with torch.device("meta" if args.meta else device):
        model = Net(width=32, depth=3)
    early = torch.optim.AdamW(model.parameters(), lr=1e-2)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=not args.keep)
    fully_shard(model, mp_policy=policy, reshard_after_forward=not args.keep)
    if args.meta:
        model.to_empty(device=device)
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    optimizer = early if args.early else torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randint(0, 64, (8, 16), generator=torch.Generator().manual_seed(1))
    own = data[rank::world].to(device)
    losses = []
    for _ in range(4):
        logits = model(own)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), own.roll(-1).flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.moved:
            model.cpu()
            model.to(device)
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / world)
    if rank == 0:
        args.loss_file.write_text(json.dumps(losses))
        print(os.environ["WORLD_SIZE"], "ranks:", *losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
