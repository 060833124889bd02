"""Starts the workers of an attempt with torch elastic, and names their environment."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import channel, leftovers, preset
from .attempt import Attempt
from .output import Output

if TYPE_CHECKING:
    from torch.distributed import TCPStore
    from torch.distributed.elastic.multiprocessing import PContext


def host_store() -> TCPStore:
    """The store that the workers' process groups meet at, on a free port of this host.

    Every attempt needs one of its own: the workers' keys have no prefix for the attempt
    (`_create_c10d_store` in torch/distributed/rendezvous.py).
    """
    from torch.distributed import TCPStore

    return TCPStore("localhost", 0, is_master=True, wait_for_workers=False)


def environments(
    attempt: Attempt, run_id: str, channel_name: str, port: int
) -> dict[int, dict[str, str]]:
    """What each worker finds in its environment beyond the launcher's own, by local rank.

    The names up to TORCHELASTIC_* are those that torchrun gives
    (`_start_workers` in torch/distributed/elastic/agent/server/local_elastic_agent.py).
    """
    plan = attempt.plan
    nproc = plan.request.nproc
    common = {
        "WORLD_SIZE": nproc,
        "LOCAL_WORLD_SIZE": nproc,
        "GROUP_RANK": 0,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": nproc,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": attempt.number,
        "TORCHELASTIC_MAX_RESTARTS": attempt.number,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": True,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        leftovers.VARIABLE: run_id,
        channel.VARIABLE: channel_name,
        preset.VARIABLE: preset.encode(plan.preset.settings()),
        preset.OVERRIDES_VARIABLE: preset.encode(plan.overrides),
        **_defaults(plan.hardware.accelerator.environment),
    }
    if nproc > 1:
        common |= _defaults({"OMP_NUM_THREADS": "1"})
    return {
        rank: {
            **{name: str(value) for name, value in common.items()},
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "ROLE_RANK": str(rank),
        }
        for rank in range(nproc)
    }


def _defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that the user has not set.

    PYTORCH_ALLOC_CONF, the newer name for every device, rules out the device's own: torch_npu
    refuses both.
    """
    return {
        name: value
        for name, value in variables.items()
        if name not in os.environ
        and not (name.endswith("_ALLOC_CONF") and "PYTORCH_ALLOC_CONF" in os.environ)
    }


def start(attempt: Attempt, envs: dict[int, dict[str, str]], output: Output) -> PContext:
    """All workers of the attempt, each leading a session of its own."""
    from torch.distributed.elastic.multiprocessing import start_processes
    from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs

    class Pipes(LogsSpecs):  # type: ignore[misc]  # torch is typed as Any
        """Sends each worker's stdout and stderr into our pipes instead of into files."""

        def reify(self, envs: dict[int, dict[str, str]]) -> Any:
            paths: dict[int, dict[int, str]] = {1: {}, 2: {}}
            for stream in output.streams:
                paths[stream.console][stream.rank] = stream.path
            nowhere = dict.fromkeys(envs, os.devnull)
            return LogsDest(stdouts=paths[1], stderrs=paths[2], error_files=nowhere)

        @property
        def root_log_dir(self) -> str:
            return str(attempt.folder)

    # Elastic reports failures to the log as well; what is to be said, the session says.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    request = attempt.plan.request
    kind = "module" if request.is_module else "script"
    command = ("-u", "-m", "safe_launch.worker", kind, request.script, *request.arguments)
    return start_processes(
        name="worker",
        entrypoint=sys.executable,
        args=dict.fromkeys(envs, command),
        envs=envs,
        logs_specs=Pipes(),
    )
