"""The environment of an attempt's workers: torchrun's variables, and what the launcher adds."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..checkpoints import checkpoint
from ..checks import finding
from ..core import preset
from ..core.hardware import CORES, VISIBLE
from ..core.request import LaunchRequest
from ..evidence import failed_workers, inquiry, worker_channel
from ..frameworks.config_files import deepspeed
from ..nodes.messages import Order
from ..progress import board
from ..system import orphans, run_directory
from ..system.signals import REPORT, STOPS
from . import local_rank_macro
from .forkserver.client import Server

ERROR_FILE, SIGNALS = "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"
Variables = dict[str, str]
"""A part of a process's environment."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """A node's additions to an order for its workers; none of it crosses the network.

    Attributes:
        environment: variables from the devices' profiles.
        resume: what a training resumes from (`checkpoint.VARIABLE`); empty for the script's own
            choice.
        board: path of this node's progress board; empty for none.
        sockets: folder of the sockets on which the workers answer inquiries; empty for none.
    """

    request: LaunchRequest
    server: Server
    environment: Mapping[str, str]
    resume: str = ""
    board: str = ""
    sockets: str = ""


def environments(
    order: Order, node: NodeContext, channel: str, folder: Path, interface: str | None = None
) -> dict[int, Variables]:
    """Each worker's variables beyond the launcher's environment, by local rank.

    Scripts under torch elastic's `record` write their error to TORCHELASTIC_ERROR_FILE.

    The names up to TORCHELASTIC_* are torchrun's (`_start_workers` in torch/distributed/elastic/
    agent/server/local_elastic_agent.py). If a scheduler starts a task for every device, several
    launchers share a host, and local ranks count over all of them unless each sees only its device.
    """
    request = node.request
    placement, nproc = request.placement, request.nproc
    shares = placement.beside > 1 and placement.shows_all_devices
    local = placement.local * nproc if shares else 0
    common = {
        "WORLD_SIZE": order.world,
        "LOCAL_WORLD_SIZE": nproc * placement.beside if shares else nproc,
        "GROUP_RANK": order.rank,
        "GROUP_WORLD_SIZE": len(order.workers),
        "ROLE_NAME": request.worker_options.role,
        "ROLE_WORLD_SIZE": order.world,
        "MASTER_ADDR": placement.address or "localhost",
        "MASTER_PORT": order.port,
        "TORCHELASTIC_RESTART_COUNT": order.attempt,
        "TORCHELASTIC_MAX_RESTARTS": max(request.limits.max_restarts, order.attempt),
        "TORCHELASTIC_RUN_ID": order.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": True,
        SIGNALS: ",".join(
            signal.Signals(number).name
            for number in (*STOPS, REPORT, *request.worker_options.forwarded)
        ),
        # deepspeed's (deepspeed/launcher/launch.py)
        "CROSS_RANK": order.rank,
        "CROSS_SIZE": len(order.workers),
        orphans.VARIABLE: node.server.mark,
        worker_channel.VARIABLE: channel,
        preset.VARIABLE: preset.encode(order.preset),
        preset.OVERRIDES_VARIABLE: preset.encode(order.overrides),
        preset.REPLACED_VARIABLE: preset.encode(order.replaced),
        checkpoint.VARIABLE: node.resume,
        board.VARIABLE: node.board,
        inquiry.VARIABLE: node.sockets,
        inquiry.DUMPS_VARIABLE: inquiry.dumps_prefix(folder),
        finding.VARIABLE: finding.active(request.worker_options.checks),
        deepspeed.EDITED: folder.absolute() / "edited",
        **({failed_workers.VARIABLE: ""} if failed_workers.VARIABLE in os.environ else {}),
        **lasting(request, node.environment),
    }
    if interface is not None:
        common |= _defaults({"GLOO_SOCKET_IFNAME": interface})
    return {
        place: {
            **{name: str(value) for name, value in common.items()},
            "RANK": str(rank),
            "LOCAL_RANK": str(local + place),
            "ROLE_RANK": str(rank),
            ERROR_FILE: str(run_directory.error_file(folder, rank)),
            **_per_worker(request, place, local + place),
        }
        for place, rank in enumerate(order.ranks)
    }


def _per_worker(request: LaunchRequest, place: int, local: int) -> Variables:
    """The variables of one worker: its visible device, its cores.

    Its `place` is among this launcher's workers; `local` is its local rank on the host.
    """
    result: Variables = {}
    if request.worker_options.own_device:
        # As `_set_local_rank_env` in torch's local_elastic_agent.py, and the same for Ascend's.
        for name in VISIBLE:
            listed = os.environ.get(name)
            result[name] = str(local) if listed is None else listed.split(",")[local].strip()
        result |= {"LOCAL_RANK": "0", local_rank_macro.VARIABLE: str(local)}
    if request.worker_options.cores:
        cores = request.worker_options.cores[place]
        result[CORES] = ",".join(map(str, cores))
        result["OMP_NUM_THREADS"] = str(len(cores))
    return result


def lasting(request: LaunchRequest, environment: Mapping[str, str]) -> Variables:
    """The variables that are the same in every attempt."""
    threads = {"OMP_NUM_THREADS": "1"} if request.nproc > 1 else {}
    return _defaults({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **threads, **environment})


def _defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that the user has set.

    PYTORCH_ALLOC_CONF, the newer name for every device, excludes the device's own: torch_npu
    refuses both.
    """
    return {
        name: value
        for name, value in variables.items()
        if name not in os.environ
        and not (name.endswith("_ALLOC_CONF") and "PYTORCH_ALLOC_CONF" in os.environ)
    }
