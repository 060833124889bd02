"""Installs the guards, which apply a preset inside a worker.

A guard is a module with two names: `HOOKED`, the modules whose import it waits for, and
`install(module)`, called with each of them right after its first import and before other code sees
it. To support another framework, add a module here and to `GUARDS`.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Protocol

import wrapt

from ..evidence.observations import observations
from . import (
    accelerate,
    checkpointing,
    contradictions,
    data_parallel,
    deepspeed,
    divided_data,
    done_twice,
    fsdp,
    loading,
    optimizer,
    plan_query,
    progress,
    resuming,
    spawned_ranks,
    transformers,
)
from .checks import (
    adapters,
    averages,
    backward,
    batches,
    clipping,
    collectives,
    data_sets,
    discarded,
    dtypes,
    emptied,
    engines,
    epochs,
    evaluations,
    first_steps,
    functional,
    gathers,
    gradient_places,
    held_parameters,
    loaded_parts,
    loader_passes,
    optimizers,
    pretrained,
    rank_schedules,
    replicas,
    resumed_averages,
    resumes,
    rewards,
    samplers,
    saves,
    schedule_calls,
    schedules,
    texts,
    tokenizers,
    trainer_losses,
    worker_draws,
    zeroed_rows,
)


class Guard(Protocol):
    """The interface of the modules in `GUARDS`."""

    __name__: str

    @property
    def HOOKED(self) -> tuple[str, ...]:  # noqa: N802
        """Names of the modules whose import the guard waits for."""

    def install(self, module: ModuleType) -> None:
        """Wraps functions of a module that was just imported."""


GUARDS: tuple[Guard, ...] = (
    plan_query,  # below the others, which ask before anything is validated
    *(accelerate, checkpointing, contradictions, data_parallel, deepspeed, divided_data),
    *(done_twice, fsdp, loading, optimizer),
    progress,  # counts what the optimizer's guard has counted
    *(resuming, spawned_ranks, transformers),
    *(discarded, dtypes, batches, clipping, trainer_losses, first_steps),
    *(engines, epochs, adapters, gathers, rewards, tokenizers),
    *(gradient_places, evaluations, optimizers, rank_schedules, averages, loaded_parts),
    *(pretrained, emptied, resumed_averages, held_parameters, replicas, resumes),
    *(saves, backward, schedules, schedule_calls, texts, zeroed_rows),
    *(collectives, data_sets, loader_passes, samplers, functional, worker_draws),
)


def install() -> None:
    """Registers import hooks for all guards, without importing anything."""
    for guard in GUARDS:
        for name in guard.HOOKED:
            wrapt.register_post_import_hook(partial(_install, guard), name)


def _install(guard: Guard, module: ModuleType) -> None:
    """Installs a guard on a module; skips it if the module lacks a name."""
    try:
        guard.install(module)
    except AttributeError as error:
        name = guard.__name__.rpartition(".")[2]
        observations.remark(f"{error}: its observations and changes ({name}) are skipped")
