"""Advice for loops on DeepSpeed's engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deepspeed
from task import MICRO_BATCH, Net, Task, Towers, main, optimizer_of
from torch import Tensor, nn

Pass = Callable[[Any, Tensor, int, bool], object]
"""What follows a forward pass: engine, loss, accumulation, whether it's the last of its step."""


def engine_of(task: Task, model: nn.Module, stage: int, offload: bool, **more: object) -> Any:
    """Clips nothing, and takes the script's own optimizer."""
    config = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": task.accumulation,
        "zero_optimization": {
            "stage": stage,
            "stage3_param_persistence_threshold": 0,
            **({"offload_optimizer": {"device": "cpu"}} if offload else {}),
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 0.0,
        **more,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer_of(model), config=config)
    return engine


def stepping(engine: Any, loss: Tensor, accumulation: int, is_last: bool) -> None:
    """The engine's step follows each backward pass; the engine counts and divides."""
    engine.backward(loss)
    engine.step()


def divided(engine: Any, loss: Tensor, accumulation: int, is_last: bool) -> None:
    """The same, with the division that is usual elsewhere."""
    stepping(engine, loss / accumulation, accumulation, is_last)


def stepping_last(engine: Any, loss: Tensor, accumulation: int, is_last: bool) -> None:
    """The script accumulates itself, and steps once."""
    engine.backward(loss / accumulation)
    if is_last:
        engine.step()


def telling_the_last(engine: Any, loss: Tensor, accumulation: int, is_last: bool) -> None:
    """The script accumulates itself, and says which pass is the last."""
    engine.set_gradient_accumulation_boundary(is_last)
    stepping_last(engine, loss, accumulation, is_last)


def way(
    then: Pass,
    stage: int,
    kind: Callable[[], nn.Module] = Net,
    offload: bool = False,
    **more: object,
) -> Callable[[Task], None]:
    """A loop at a stage."""

    def trained(task: Task) -> None:
        engine = engine_of(task, kind(), stage, offload, **more)
        for batch, is_last in task.micro_batches():
            loss = engine(**batch)
            task.saw(loss)
            then(engine, loss, task.accumulation, is_last)
            if is_last:
                task.stepped(engine.module)

    return trained


main(
    {
        **{f"stepping-{stage}": way(stepping, stage) for stage in (0, 1, 2, 3)},
        **{f"offloaded-{stage}": way(stepping, stage, offload=True) for stage in (1, 2, 3)},
        **{f"divided-{stage}": way(divided, stage) for stage in (1, 2, 3)},
        **{
            f"{name}-{stage}": way(then, stage, gradient_accumulation_steps=1)
            for name, then in (("stepping-last", stepping_last), ("telling", telling_the_last))
            for stage in (0, 1, 2, 3)
        },
        **{
            f"dummy-{stage}": way(stepping, stage, lambda: Towers(dummy=True))
            for stage in (0, 1, 2, 3)
        },
    }
)
