"""Detects a script that spawns its ranks with `torch.multiprocessing.spawn`.

In a single worker, the ranks train as under python. But torch would connect them to the store of
a launcher's agent, where no rank listens and all wait: so they get a port without an agent.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from types import ModuleType
from typing import Any

import wrapt

from ..core.quantities import count_of
from ..evidence.observations import observations
from .callers import user_place

HOOKED = ("torch.multiprocessing.spawn",)
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


def install(module: ModuleType) -> None:
    """Wraps the function that spawns the ranks."""

    def start(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        count = kwargs.get("nprocs", args[2] if len(args) > 2 else 1)
        with suppress(Exception):  # what is odd here, torch reports
            _prepare(int(count))
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "start_processes", start)


def _prepare(count: int) -> None:
    import torch.distributed as dist

    if count < 2 or AGENT_STORE not in os.environ or dist.is_initialized():
        return
    workers = int(os.environ["WORLD_SIZE"])
    begun = f"{user_place()}: torch.multiprocessing.spawn starts {count_of(count, 'process')}"
    advice = "call that function once in each worker, with RANK and WORLD_SIZE of its environment"
    if workers > 1:
        observations.remark(
            f"{begun} in each of {count_of(workers, 'worker')}. If they are the training's ranks, "
            f"run the script with python or --nproc 1, or {advice}"
        )
        return
    del os.environ[AGENT_STORE]
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(_free_port())}
    observations.remark(
        f"{begun}. If they are the training's ranks, nothing watches or corrects them: for that, "
        f"{advice}, and set --nproc {count}"
    )


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as listener:
        return int(listener.getsockname()[1])
