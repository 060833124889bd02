"""Advice for loops on torch's own wrappers, which accumulate without synchronizing between."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from task import RANKS, Blocks, Net, Task, Towers, main, optimizer_of, partly_frozen
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel


def accumulated(
    task: Task,
    model: nn.Module,
    between: Callable[[], contextlib.AbstractContextManager[Any]],
    before: Callable[[bool], object] = lambda is_last: None,
    backward: Callable[[Tensor], object] = lambda loss: loss.backward(),
    step: Callable[[torch.optim.Optimizer], object] = lambda optimizer: optimizer.step(),
) -> None:
    """The usual loop, with what a way does otherwise."""
    optimizer = optimizer_of(model)
    for batch, is_last in task.micro_batches():
        before(is_last)
        with contextlib.nullcontext() if is_last else between():
            loss = model(**batch)
            task.saw(loss)
            backward(loss / task.accumulation)
        if is_last:
            step(optimizer)
            optimizer.zero_grad()
            task.stepped(model)


def ddp(model: nn.Module, **options: Any) -> Callable[[Task], None]:
    """Under DDP."""

    def way(task: Task) -> None:
        torch.distributed.init_process_group("gloo")
        wrapped = DistributedDataParallel(model, **options)
        accumulated(task, wrapped, wrapped.no_sync)

    return way


def ddp_in_step(model: nn.Module, **options: Any) -> Callable[[Task], None]:
    """Under DDP, which reduces in each micro batch."""

    def way(task: Task) -> None:
        torch.distributed.init_process_group("gloo")
        wrapped = DistributedDataParallel(model, **options)
        accumulated(task, wrapped, contextlib.nullcontext)

    return way


def fsdp(**options: Any) -> Callable[[Task], None]:
    """Under FSDP's first version, with a block that is frozen."""

    def way(task: Task) -> None:
        torch.distributed.init_process_group("gloo")
        wrapped: Any = FullyShardedDataParallel(
            partly_frozen(), device_id=torch.device("cpu"), use_orig_params=True, **options
        )
        kept = task.stepped

        def stepped(model: nn.Module) -> None:
            with FullyShardedDataParallel.summon_full_params(model):
                kept(model)

        task.stepped = stepped  # type: ignore[method-assign]
        accumulated(task, wrapped, wrapped.no_sync)

    return way


def two_losses(retained: bool) -> Callable[[Task], None]:
    """A loss of two parts, with one backward pass, or with two."""

    def backward(loss: Tensor) -> None:
        if retained:
            (loss * 0.5).backward(retain_graph=True)
            (loss * 0.5).backward()
        else:
            (loss * 0.5 + loss * 0.5).backward()

    def way(task: Task) -> None:
        torch.distributed.init_process_group("gloo")
        wrapped = DistributedDataParallel(Net())
        accumulated(task, wrapped, wrapped.no_sync, backward=backward)

    return way


def scaled(task: Task) -> None:
    """With a scaler: unscaled and clipped once a step."""
    torch.distributed.init_process_group("gloo")
    wrapped = DistributedDataParallel(Net())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(optimizer: torch.optim.Optimizer) -> None:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(wrapped.parameters(), 1e6)
        scaler.step(optimizer)
        scaler.update()

    def backward(loss: Tensor) -> None:
        scaler.scale(loss).backward()

    accumulated(task, wrapped, wrapped.no_sync, backward=backward, step=step)


def fsdp2(synced: bool) -> Callable[[Task], None]:
    """Under FSDP2, with and without reducing in each micro batch."""

    def way(task: Task) -> None:
        torch.distributed.init_process_group("gloo")
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
        model: Any = Net()
        for layer in model.children():
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        before = (lambda is_last: None) if synced else model.set_requires_gradient_sync
        accumulated(task, model, contextlib.nullcontext, before)

    return way


main(
    {
        "plain": ddp(Net()),
        "find-unused": ddp(Towers(), find_unused_parameters=True),
        "dummy": ddp(Towers(dummy=True), static_graph=True),
        "dummy-plain": ddp(Towers(dummy=True)),
        "non-reentrant": ddp(Blocks(False)),
        "find": ddp(Blocks(), find_unused_parameters=True),
        "non-reentrant-find": ddp(Blocks(False), find_unused_parameters=True),
        "reentrant-static": ddp(Blocks(True), static_graph=True),
        "reentrant-static-find": ddp(Blocks(True), static_graph=True, find_unused_parameters=True),
        "not-checkpointed": ddp(Blocks()),
        "reentrant-static-in-step": ddp_in_step(Blocks(True), static_graph=True),
        "dummy-in-step": ddp_in_step(Towers(dummy=True), static_graph=True),
        "fsdp-frozen": fsdp(),
        "fsdp-none": fsdp(sharding_strategy=torch.distributed.fsdp.ShardingStrategy.NO_SHARD),
        "one-backward": two_losses(False),
        "retained": two_losses(True),
        "scaled-once": scaled,
        "fsdp2-sync": fsdp2(False),
        "fsdp2-each": fsdp2(True),
    }
)
