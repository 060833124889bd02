"""Trainings that keep, save, thaw or count otherwise than their authors think.

trains_unseen.py NAME... [--right]
"""

import copy
import tempfile

import torch
from says_words import ACCUMULATION, STEPS, Net, adam, batches, run, steps
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ConstantLR, LinearLR, SequentialLR

LONG = 4 * STEPS


def best_kept(right: bool) -> None:
    """As in https://github.com/WenjieDu/PyPOTS/issues/667: the best weights, by reference."""
    net = Net()
    model = DistributedDataParallel(net)
    optimizer, source = adam(model), batches()
    steps(model, optimizer, source)
    best = copy.deepcopy(net.state_dict()) if right else net.state_dict()
    steps(model, optimizer, source)
    net.load_state_dict(best)


def best_saved(right: bool) -> None:
    """The same, saved at the end beside other values."""
    net = Net()
    model = DistributedDataParallel(net)
    optimizer, source = adam(model), batches()
    steps(model, optimizer, source)
    best = {"epoch": 1, "model": copy.deepcopy(net.state_dict()) if right else net.state_dict()}
    steps(model, optimizer, source)
    with tempfile.TemporaryFile() as file:
        torch.save(best, file)


def beside_adapter(right: bool) -> None:
    """As in https://github.com/huggingface/peft/issues/310: a head that is thawed by hand."""
    from peft import LoraConfig, get_peft_model

    saved = {"modules_to_save": ["head"]} if right else {}
    model = get_peft_model(Net(), LoraConfig(r=2, target_modules=["hidden"], **saved))
    if not right:
        model.base_model.model.head.requires_grad_(True)
    wrapped = DistributedDataParallel(model)
    steps(wrapped, adam(wrapped), batches())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)


def thawed_later(right: bool) -> None:
    """As in https://github.com/OptimalScale/LMFlow/issues/726: made of what isn't frozen."""
    net = Net()
    model = DistributedDataParallel(net)
    if not right:
        net.hidden.requires_grad_(False)
    trained = [each for each in net.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    net.hidden.requires_grad_(True)
    steps(model, optimizer, batches())


def engine(net: torch.nn.Module, optimizer: torch.optim.Optimizer, **more: object):
    """DeepSpeed's engine, and texts for it."""
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True}
    config["gradient_accumulation_steps"] = more.pop("accumulation", 1)
    return deepspeed.initialize(model=net, optimizer=optimizer, config=config, **more)[0]


def counted_twice(right: bool) -> None:
    """As in https://github.com/deepspeedai/DeepSpeed/issues/758: two who accumulate."""
    net = Net()
    trained, source = engine(net, adam(net), accumulation=ACCUMULATION), batches()
    for step in range(LONG):
        words = next(source)
        trained.backward(trained(words, labels=words))
        if right or step % ACCUMULATION:
            trained.step()
    trained.destroy()


def decayed_by_step(right: bool) -> None:
    """As in https://github.com/lucidrains/DALLE-pytorch/issues/278: a decay for epochs."""
    net = Net()
    optimizer, source = adam(net), batches()
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    trained = engine(net, optimizer, **({} if right else {"lr_scheduler": schedule}))
    for step in range(LONG):
        words = next(source)
        trained.backward(trained(words, labels=words))
        trained.step()
        if right and step % STEPS == STEPS - 1:
            schedule.step()
    trained.destroy()


def schedule_anew(right: bool) -> None:
    """As in https://github.com/PolymathicAI/the_well/pull/63: the schedule isn't saved."""
    model, source = DistributedDataParallel(Net()), batches()
    optimizer = adam(model)
    steps(model, optimizer, source)
    held, optimizer = optimizer.state_dict(), adam(model)
    parts = [LinearLR(optimizer, 0.1, 1.0, 4), ConstantLR(optimizer, 1.0)]
    schedule = SequentialLR(optimizer, parts, milestones=[4])
    optimizer.load_state_dict(held)
    for _ in range(STEPS if right else 0):
        schedule.step()
    for _ in range(STEPS):
        words = next(source)
        model(words, labels=words).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


def gathered_early(right: bool) -> None:
    """As in https://github.com/pytorch/pytorch/issues/149205: a pass before the optimizer."""
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    net, source = Net(), batches()
    fully_shard(net.hidden, mesh=mesh)
    fully_shard(net, mesh=mesh)
    words = next(source)
    net(words, labels=words)
    if right:
        net.reshard()
    steps(net, adam(net), source)


FAULTS = {
    one.__name__: one
    for one in (
        *(best_kept, best_saved, beside_adapter, thawed_later, counted_twice, decayed_by_step),
        *(gathered_early, schedule_anew),
    )
}
run(FAULTS)
