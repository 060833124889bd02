"""Trainings that forget a part of what they load, average, or set, and their correct twins.

trains_forgetfully.py NAME... [--right]
"""

import os
import random
import tempfile
from copy import deepcopy

import torch
from says_words import STEPS, Net, adam, batches, run, steps
from torch.nn.parallel import DistributedDataParallel
from trains_commonly import Regression, fit, mse_loss, numbered_batches


def shared_file(name: str) -> str:
    """A path in a folder that all ranks have."""
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    return os.path.join(folder[0], name)


def keep(content: object, path: str) -> None:
    """Rank 0 saves for all."""
    if torch.distributed.get_rank() == 0:
        torch.save(content, path)
    torch.distributed.barrier()


def averaging(model, average, optimizer, source, rate: float = 0.02) -> None:
    """A loop whose average follows the weights."""
    wrapped = DistributedDataParallel(model)
    for _ in range(STEPS):
        words = next(source)
        wrapped(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for kept, weight in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(1 - rate).add_(weight.to(kept.dtype), alpha=rate)


def average_anew(right: bool) -> None:
    """As in https://github.com/Vchitect/Latte/issues/55: the average isn't loaded."""
    path, source = shared_file("last.pt"), batches()
    for is_resumed in (False, True):
        torch.manual_seed(0)
        model = Net()
        kept = torch.load(path) if is_resumed else None
        if kept is not None:
            model.load_state_dict(kept["model"])
        average = deepcopy(model).requires_grad_(False)
        optimizer = adam(model)
        if kept is not None:
            optimizer.load_state_dict(kept["optimizer"])
            if right:
                average.load_state_dict(kept["ema"])
        averaging(model, average, optimizer, source)
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        keep({**states, "ema": average.state_dict()}, path)


def scaler_anew(right: bool) -> None:
    """As in https://github.com/PolymathicAI/the_well/issues/77: the scale isn't loaded."""
    path, source = shared_file("last.pt"), batches()
    for is_resumed in (False, True):
        model = Net()
        optimizer, scaler = adam(model), torch.amp.GradScaler("cpu", init_scale=2.0)
        if is_resumed:
            kept = torch.load(path)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            if right:
                scaler.load_state_dict(kept["scaler"])
        wrapped = DistributedDataParallel(model)
        for _ in range(STEPS):
            words = next(source)
            scaler.scale(wrapped(words, labels=words)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        keep({**states, "scaler": scaler.state_dict()}, path)


def random_anew(right: bool) -> None:
    """As in https://github.com/hao-ai-lab/FastVideo/pull/1441: random states are saved only."""
    path, source = shared_file("last.pt"), batches()
    for is_resumed in (False, True):
        model = Net()
        optimizer = adam(model)
        if is_resumed:
            kept = torch.load(path, weights_only=False)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            if right:
                random.setstate(kept["random"]["python"])
                torch.set_rng_state(kept["random"]["torch"])
        steps(DistributedDataParallel(model), optimizer, source)
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        drawn = {"python": random.getstate(), "torch": torch.get_rng_state()}
        keep({**states, "random": drawn}, path)


class Normed(Regression):
    """A regression with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.BatchNorm1d(16)


def statistics_left(right: bool) -> None:
    """As in https://github.com/pytorch/ignite/issues/2590: an average of the parameters only."""
    model = Normed()
    average = deepcopy(model).eval()
    wrapped, source = DistributedDataParallel(model), numbered_batches()

    def loss_of(wrapper, batch):
        with torch.no_grad():
            for kept, weight in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9).add_(weight, alpha=0.1)
            for kept, followed in zip(average.buffers(), model.buffers(), strict=True):
                if right:
                    kept.copy_(followed)
        return mse_loss(wrapper(batch[0]).squeeze(-1), batch[1])

    fit(wrapped, adam(model), loss_of, source)
    with torch.no_grad():
        for _ in range(2):
            average(next(source)[0])


def average_in_half(right: bool) -> None:
    """As in https://github.com/konpatp/diffae/issues/16: the average rounds its updates away."""
    model = Net()
    average = deepcopy(model).requires_grad_(False)
    if not right:
        average = average.bfloat16()
    averaging(model, average, adam(model), batches(), rate=0.001)


def average_before_load(right: bool) -> None:
    """As in https://github.com/facebookresearch/DiT/issues/35: the average begins at random."""
    path, source = shared_file("pretrained.pt"), batches()
    keep(Net().state_dict(), path)
    model = Net()
    average = deepcopy(model)
    model.load_state_dict(torch.load(path))
    if right:
        average = deepcopy(model)
    averaging(model, average.requires_grad_(False), adam(model), source)


def copied_empty(right: bool) -> None:
    """As in https://github.com/deepspeedai/DeepSpeed/issues/6987: an average of nothing."""
    import deepspeed

    model = Net()
    average = deepcopy(model) if right else None
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=adam(model), config=config)
    average = average or deepcopy(model)
    source = batches()
    for _ in range(STEPS):
        words = next(source)
        engine.backward(engine(words, labels=words))
        engine.step()
        for kept, weight in zip(average.parameters(), model.parameters(), strict=True):
            with deepspeed.zero.GatheredParameters([weight], enabled=right), torch.no_grad():
                kept.mul_(0.9).add_(weight, alpha=0.1)


class Deep(torch.nn.Module):
    """A model whose body may have loaded weights."""

    def __init__(self) -> None:
        super().__init__()
        layers = (torch.nn.Linear(8, 8) for _ in range(4))
        self.body = torch.nn.Sequential(*layers, torch.nn.LayerNorm(8))
        self.head = torch.nn.Linear(8, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(values))


def loss_of(model, batch) -> torch.Tensor:
    return mse_loss(model(batch[0]).squeeze(-1), batch[1])


def renamed(right: bool) -> None:
    """As in https://github.com/stefanopini/simple-HRNet/issues/79: most names don't match."""
    pretrained = Deep().body.state_dict()
    if not right:
        pretrained = {
            name if name.startswith("4.") else f"layers.{name}": weight
            for name, weight in pretrained.items()
        }
    model = Deep()
    model.body.load_state_dict(pretrained, strict=False)
    model = DistributedDataParallel(model)
    fit(model, adam(model), loss_of, numbered_batches())


def overwritten(right: bool) -> None:
    """As in https://github.com/open-mmlab/mmengine/issues/555: initialized after the load."""

    def begin(module):
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.02)

    pretrained = Deep().state_dict()
    model = Deep()
    if right:
        model.apply(begin)
    model.load_state_dict(pretrained)
    if not right:
        model.apply(begin)
    model = DistributedDataParallel(model)
    fit(model, adam(model), loss_of, numbered_batches())


if __name__ == "__main__":
    run(
        {
            function.__name__: function
            for function in (
                *(average_anew, scaler_anew, random_anew, statistics_left, average_in_half),
                *(average_before_load, copied_empty, renamed, overwritten),
            )
        }
    )
