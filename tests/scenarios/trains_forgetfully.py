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


def epochs(count: int, after, schedule, *, by_step: bool = False) -> None:
    """A plain loop over several epochs of six steps."""
    model = DistributedDataParallel(Net())
    optimizer = adam(model)
    made = schedule(optimizer)
    source = batches()
    for epoch in range(count):
        total = 0.0
        for _ in range(6):
            words = next(source)
            loss = model(words, labels=words)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
            if by_step:
                after(made, epoch, total)
        if not by_step:
            after(made, epoch, total)


def schedules_overwritten(right: bool) -> None:
    """As in https://github.com/tier4/Diffusion-Planner/pull/293: both set the same rates."""
    from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR

    def made(optimizer):
        warmup = LinearLR(optimizer, 0.1, total_iters=3)
        if not right:
            warmup = LambdaLR(optimizer, lambda step: min(1, (step + 1) / 3))
        return CosineAnnealingLR(optimizer, 60), warmup

    epochs(2, lambda made, *_: [one.step() for one in made], made, by_step=True)


def metric_as_epoch(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/33416: a loss given to StepLR."""
    from torch.optim.lr_scheduler import StepLR

    def after(schedule, epoch, total):
        schedule.step() if right else schedule.step(total / (epoch + 6.5))

    epochs(3, after, lambda optimizer: StepLR(optimizer, 2))


def plateau_turned(right: bool) -> None:
    """As in https://github.com/md-mohaiminul/ViS4mer/issues/4: the accuracy is to fall."""
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    def after(schedule, epoch, _total):
        accuracy = 0.1 + 0.05 * epoch
        schedule.step(accuracy)

    mode = "max" if right else "min"
    epochs(3, after, lambda optimizer: ReduceLROnPlateau(optimizer, mode, patience=5))


def stepped_by_epoch(right: bool) -> None:
    """As in https://github.com/sthalles/SimCLR/issues/8: made for all steps."""
    from torch.optim.lr_scheduler import CosineAnnealingLR

    num_epochs = 3

    def after(schedule, *_):
        schedule.step()

    def made(optimizer):
        return CosineAnnealingLR(optimizer, num_epochs if right else 6 * num_epochs)

    epochs(num_epochs, after, made)


def rates_apart(right: bool) -> None:
    """As in https://github.com/Lightning-AI/litgpt/issues/599: each rank's own metric."""
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    def after(schedule, epoch, _total):
        is_rising = right or torch.distributed.get_rank() == 0
        metric = float(epoch if is_rising else -epoch)
        schedule.step(metric)

    epochs(3, after, lambda optimizer: ReduceLROnPlateau(optimizer, patience=0))


def rate_overruled(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/156846: the loaded rate is used."""
    path, source = shared_file("last.pt"), batches()
    for rate in (1e-2, 1e-4):
        model = Net()
        optimizer = adam(model, rate)
        if rate < 1e-2:
            kept = torch.load(path)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            if right:
                for group in optimizer.param_groups:
                    group["lr"] = rate
        steps(DistributedDataParallel(model), optimizer, source)
        keep({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


class Rotary(torch.nn.Module):
    """Predicts words by attention with rotary positions."""

    def __init__(self, words: int = 40, width: int = 16) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)
        self.head = torch.nn.Linear(width, words)
        self.turn = Turn(width)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        values = self.embedding(words)
        turned = self.turn(values)
        attended = torch.nn.functional.scaled_dot_product_attention(
            turned, turned, values, is_causal=True
        )
        logits = self.head(attended).float()[:, :-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


class Turn(torch.nn.Module):
    """Rotates by position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("inv_freq", self.made(), persistent=False)

    def made(self) -> torch.Tensor:
        return 1.0 / 1000 ** (torch.arange(0, self.width, 2).float() / self.width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        places = torch.arange(values.shape[1]).to(self.inv_freq.dtype)
        # What is left in unwritten memory may be anything, and isn't to make weights NaN.
        frequencies = self.inv_freq.nan_to_num(0, 1, 0).clamp(0, 1)
        angles = torch.outer(places, frequencies)
        one, other = values.chunk(2, -1)
        cosine, sine = angles.cos().to(values.dtype), angles.sin().to(values.dtype)
        return torch.cat([one * cosine - other * sine, other * cosine + one * sine], -1)


def long_texts(length: int = 300):
    """Batches of long texts, others on each rank."""
    chance = torch.Generator().manual_seed(torch.distributed.get_rank())
    while True:
        yield torch.randint(40, (2, length), generator=chance)


def never_written(right: bool) -> None:
    """As in https://github.com/pytorch/torchtitan/issues/164: frequencies left by to_empty."""
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = Rotary()
    fully_shard(model)
    model.to_empty(device="cpu")
    for module in (model.embedding, model.head):
        module.reset_parameters()
    if right:
        model.turn.inv_freq = model.turn.made()
    fit(model, adam(model), lambda model, words: model(words), long_texts(20))


def frequencies_cast(right: bool) -> None:
    """As in https://github.com/EleutherAI/gpt-neox/issues/1003: 256 is 257 in bfloat16."""
    model = Rotary().bfloat16()
    if right:
        model.turn.inv_freq = model.turn.made()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    fit(model, optimizer, lambda model, words: model(words), long_texts())


def sharded_apart(right: bool) -> None:
    """As in https://github.com/pytorch/torchtitan/issues/1777: FSDP2 broadcasts nothing."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0 if right else torch.distributed.get_rank())
    model = Net()
    fully_shard(model)
    steps(model, adam(model), batches())


def policy_alone(right: bool) -> None:
    """As in https://github.com/Modalities/modalities/issues/464: no copy in float32."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = Net() if right else Net().bfloat16()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mp_policy=policy)
    steps(model, adam(model), batches())


def rows_decayed(right: bool) -> None:
    """As in https://github.com/huggingface/diffusers/issues/507: weight decay moves old words."""
    model = Net().requires_grad_(False)
    weight = model.embedding.weight.requires_grad_(True)
    old = torch.arange(len(weight)) < 36
    first = weight.detach().clone()
    wrapped, source = DistributedDataParallel(model), batches()
    optimizer = torch.optim.AdamW([weight], lr=1e-2)
    for _ in range(STEPS):
        words = next(source)
        wrapped(words, labels=words).backward()
        weight.grad[old] = 0
        optimizer.step()
        optimizer.zero_grad()
        if right:
            with torch.no_grad():
                weight[old] = first[old]


if __name__ == "__main__":
    run(
        {
            function.__name__: function
            for function in (
                *(average_anew, scaler_anew, random_anew, statistics_left, average_in_half),
                *(average_before_load, copied_empty, renamed, overwritten),
                *(schedules_overwritten, metric_as_epoch, plateau_turned, stepped_by_epoch),
                *(rates_apart, rate_overruled, never_written, frequencies_cast),
                *(sharded_apart, policy_alone, rows_decayed),
            )
        }
    )
