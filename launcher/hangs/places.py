"""Infers a rank's activity from its Python stack, by rules with sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from ..evidence.failure_record import Frame
from ..progress.board import Phase
from .standing import Standing, is_busy

_WAITS_ON_PURPOSE = re.compile(
    r"\b(accept|acquire|communicate|get|input|join|listen|poll|read\w*|recv\w*|result|"
    r"run_forever|select|serve\w*|sleep|until|wait\w*)\w*\("
)
"""Calls in a source line with which a script may wait on purpose."""


class Place(Enum):
    """A rank's activity, inferred from its stack."""

    COLLECTIVE = "collective"
    """Waits for other ranks in a collective or a message."""
    RENDEZVOUS = "rendezvous"
    """Waits for others while process groups are created or destroyed."""
    BACKWARD = "backward"
    """Computes or waits in the backward pass, whose collectives have no frame."""
    DEVICE = "device"
    """Waits for the device, which may wait for others."""
    LOCK = "lock"
    """Waits for another process's file lock."""
    LOADER = "loader"
    """Waits for its data loader's workers."""
    PERSON = "person"
    """Waits for a user's input."""
    ELSEWHERE = "elsewhere"
    UNREAD = "unread"
    """The stack is unknown."""


WAITS_FOR_OTHERS = frozenset({Place.COLLECTIVE, Place.RENDEZVOUS, Place.LOCK})
"""Places in which a rank certainly waits for others."""


MAY_WAIT = WAITS_FOR_OTHERS | {Place.BACKWARD, Place.DEVICE}


_COLLECTIVES = (
    "broadcast all_reduce all_reduce_coalesced reduce all_gather all_gather_coalesced "
    "all_gather_single all_gather_into_tensor _all_gather_base gather scatter reduce_scatter "
    "reduce_scatter_single reduce_scatter_tensor _reduce_scatter_base all_to_all all_to_all_single "
    "barrier monitored_barrier send recv wait batch_isend_irecv all_gather_object gather_object "
    "broadcast_object_list scatter_object_list send_object_list recv_object_list"
)


_MEETINGS = (
    "init_process_group new_group _new_group_with_tag split_group new_subgroups "
    "_new_process_group_helper _store_based_barrier _create_process_group_wrapper "
    "destroy_process_group"
)


_C10D = r"torch/distributed/distributed_c10d\.py$"


_TABLE: tuple[tuple[str, str, Place], ...] = (
    # torch/distributed/distributed_c10d.py, 2.3 to 2.13: the public functions call C++ themselves.
    (_C10D, rf"^({_COLLECTIVES.replace(' ', '|')})$", Place.COLLECTIVE),
    (_C10D, rf"^({_MEETINGS.replace(' ', '|')})$", Place.RENDEZVOUS),
    # The store is made, and waited for, in torch/distributed/rendezvous.py: _create_c10d_store.
    (r"torch/distributed/rendezvous\.py$", "", Place.RENDEZVOUS),
    # torch/distributed/utils.py: DDP's constructor compares shapes and broadcasts in C++.
    (
        r"torch/distributed/utils\.py$",
        "^(_verify_param_shape_across_processes|_sync_params_and_buffers)$",
        Place.COLLECTIVE,
    ),
    # torch/nn/parallel/distributed.py: buffers are broadcast by C++ before the forward pass.
    (
        r"torch/nn/parallel/distributed\.py$",
        "^(_distributed_broadcast_coalesced|_sync_(module_)?buffers|__init__)$",
        Place.COLLECTIVE,
    ),
    (
        r"torch/distributed/_functional_collectives\.py$",
        "^(wait_tensor|_maybe_wrap_tensor|wait|trigger_wait)$",
        Place.COLLECTIVE,
    ),
    # deepspeed/comm/comm.py and torch.py wrap the functions of torch.distributed.
    (r"deepspeed/comm/\w+\.py$", rf"^({_COLLECTIVES.replace(' ', '|')})$", Place.COLLECTIVE),
    # deepspeed/runtime/zero/partition_parameters.py: `wait` of its handles calls torch's.
    (r"deepspeed/runtime/zero/\w+\.py$", "^wait$", Place.COLLECTIVE),
    # torch/autograd/graph.py: since torch 2.3 (before, __init__.py) the engine runs below this.
    (r"torch/autograd/(graph|__init__|function)\.py$", "(backward|_engine_run)", Place.BACKWARD),
    (r"torch/(cuda|npu|xpu)/(__init__|streams|utils)\.py$", "synchronize", Place.DEVICE),
    (r"deepspeed/accelerator/\w+_accelerator\.py$", "synchronize", Place.DEVICE),
    # filelock/_api.py: `acquire` polls; datasets and huggingface_hub hold such locks.
    (r"filelock/\w+\.py$", "acquire", Place.LOCK),
    # torch/utils/file_baton.py: another process builds the same extension.
    (r"torch/utils/file_baton\.py$", "wait", Place.LOCK),
    (r"(^|/)(pdb|bdb|cmd|code|codeop|IPython/.*|ipdb/.*)\.py$", "", Place.PERSON),
)
"""File (searched), function (searched) and place: of the innermost frame."""


_WRAPPERS = re.compile(
    r"torch/(_ops|distributed/c10d_logger|utils/_contextlib|_tensor|_compile)\.py$"
    r"|torch/_dynamo/eval_frame\.py$|deepspeed/utils/nvtx\.py$"
)
"""Files of wrappers, whose callers count instead."""


_LOADER = re.compile(r"torch/utils/data/dataloader\.py$")


_LOADER_WAITS = frozenset({"_try_get_data", "_get_data", "_shutdown_workers"})


_QUEUES = re.compile(
    r"(^|/)(multiprocessing/(queues|connection|popen_\w+|process|synchronize)|queue|threading|"
    r"selectors|subprocess|asyncio/\w+|concurrent/futures/\w+)\.py$"
)


_WORK = re.compile(r"\.wait\(\)")
"""`Work.wait` and `Handle.wait` are C++ and have no frame, unlike their caller."""


_ON_DEVICE = re.compile(r"\.(item|cpu|tolist|numpy|cuda|npu|synchronize)\(|\.to\(")


_DEBUGGERS = ("pdb.py", "bdb.py", "ipdb.py")


_INPUT = re.compile(r"\b(raw_)?input\(|\bbreakpoint\(\)|set_trace\(\)")


_LEAVING = frozenset(
    {"barrier", "monitored_barrier", "destroy_process_group", "wait_for_everyone", "end_training"}
)


_SAVES = re.compile(r"save|checkpoint|state_dict|consolidat")


def place_of(frames: Sequence[Frame]) -> Place:
    """A rank's activity, inferred from its innermost frames."""
    if not frames:
        return Place.UNREAD
    inner = without_wrappers(frames)
    last = inner[-1]
    debugging = any(frame.file.rpartition("/")[2] in _DEBUGGERS for frame in inner[-6:])
    if debugging or _INPUT.search(last.source):
        return Place.PERSON
    for file, function, place in _TABLE:
        if re.search(file, last.file) and re.search(function, last.function):
            return place
    if any(_LOADER.search(frame.file) and frame.function in _LOADER_WAITS for frame in inner[-8:]):
        return Place.LOADER
    if _QUEUES.search(last.file):
        return Place.ELSEWHERE
    if _WORK.search(last.source):
        return Place.COLLECTIVE
    return Place.DEVICE if _ON_DEVICE.search(last.source) else Place.ELSEWHERE


def without_wrappers(frames: Sequence[Frame]) -> Sequence[Frame]:
    """A stack without its innermost frames that belong to wrappers."""
    end = len(frames)
    while end > 1 and _WRAPPERS.search(frames[end - 1].file):
        end -= 1
    return frames[:end]


def shown_frame(standing: Standing) -> Frame | None:
    """The user's innermost frame, or else the innermost; None without frames."""
    frames = standing.frames[::-1]
    of_user = (frame for frame in frames if frame.file in standing.own_files)
    return next(of_user, next(iter(frames), None))


def waiting_function(frames: Sequence[Frame]) -> str:
    """The function in which a stack waits for others, as in `barrier`; empty if none is seen."""
    for frame in reversed(frames):
        if place_of((frame,)) is Place.COLLECTIVE and frame.function in _COLLECTIVES.split():
            return frame.function
        if frame.function in _LEAVING:
            return frame.function
    return ""


def is_leaving(standing: Standing) -> bool:
    """Whether the rank waits after training, at a barrier or the groups' end."""
    if call := waiting_function(standing.frames):
        return call in _LEAVING
    return bool(standing.pending) and "barrier" in standing.pending[0].kind


def is_saving(frames: Sequence[Frame]) -> bool:
    """Whether function names show the creation of a checkpoint or state dict."""
    return any(_SAVES.search(frame.function) for frame in frames)


def hung_at_end(standings: Sequence[Standing]) -> frozenset[int]:
    """The ranks that only need to exit but don't, as objects are destroyed in native code.

    Seen with torch 2.13: destroying a process group joins a gloo thread while holding the
    interpreter's lock, for which that thread waits.

    All others, including rank 0, have ended after the same number of steps. These ranks are idle,
    and wait neither for others nor on purpose.
    """
    ended = {standing.rank for standing in standings if standing.phase is Phase.ENDED}
    rest = [standing for standing in standings if standing.rank not in ended]
    steps = {standing.step for standing in standings}
    if 0 not in ended or len(steps) > 1 or not all(steps):
        return frozenset()
    if any(
        is_busy(standing) or standing.children or not _is_ending(standing.frames)
        for standing in rest
    ):
        return frozenset()
    return frozenset(standing.rank for standing in rest)


def _is_ending(frames: Sequence[Frame]) -> bool:
    if not frames:
        return False
    last = frames[-1]
    if last.function == "destroy_process_group":
        return True
    is_elsewhere = place_of(frames) is Place.ELSEWHERE
    return is_elsewhere and not _WAITS_ON_PURPOSE.search(last.source)
