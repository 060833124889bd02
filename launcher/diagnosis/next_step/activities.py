"""What a job was doing at the end of its log, and what to try if it stands still there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

MOST_LAST = 12
"""Last lines of a file to search."""
OF_HCCL = re.compile(r"\b(?:hccl|torch_npu|ascend|npu)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Activity:
    """An activity before or between training steps.

    Attributes:
        lines: what it prints.
        words: its name, after "the log ends".
        advice: what to try if the job doesn't move, after "if it stands still there,".
    """

    lines: re.Pattern[str]
    words: str
    advice: str = ""


def _activity(lines: str, words: str, advice: str) -> Activity:
    return Activity(re.compile(lines), words, advice)


NCCL = _activity(
    r"\b(?:NCCL|RCCL) INFO\b.*\b(?:Init (?:START|COMPLETE)|Connected all|Channel \d|Bootstrap"
    r"|Using network|Trees|Setting affinity|ncclCommInit)",
    "while NCCL connects the ranks",
    "run once with NCCL_P2P_DISABLE=1. If it trains then, copies between the GPUs are broken: try"
    " another driver, and disable IOMMU or ACS in the BIOS; keep the variable if you can't. On"
    " several hosts, also try NCCL_IB_DISABLE=1.",
)
EXITS = _activity(
    r"\bprocess group has NOT been destroyed before we destruct"
    r"|\bdestroy_process_group\(\) was not called before program exit",
    "as a process exits",
    "see what still runs (`ps`): this process was exiting.",
)
"""What torch writes as a process exits (ProcessGroupNCCL.cpp)."""
NO_ERROR = (
    "torch's note on the process group is no error, and changes no weights. To silence it, call"
    " `torch.distributed.destroy_process_group()` at the script's end. Why a process exits too"
    " early is above the note."
)
"""What that line means."""
ACTIVITIES = (
    NCCL,
    EXITS,
    _activity(
        r"(?i)\bserver is not (?:up|ready)(?: yet)?\b|\bwaiting for (?:\w+ ){0,3}server\b",
        "while it waits for a server",
        "start that server first, on devices of its own (TRL: `trl vllm-serve --model MODEL`), and"
        " see in its log whether it is up, and under which address.",
    ),
    _activity(
        r"^Exception ignored in: ",
        "as Python removes its objects",
        "see what still runs (`ps`). Python goes on after an exception in `__del__` or at its exit,"
        " so that one isn't the reason.",
    ),
    _activity(
        r"\bMEMBER: \d+/\d+|\bstore[_ ]based[_ ]barrier|initializ\w+ (?:torch )?distributed\b"
        r"|\bStarting elastic_operator\b|\brdzv_configs\b|Rendezvous'ing worker group"
        r"|\bc10d\b.*\bclient socket\b",
        "while the ranks wait for each other to start",
        "start all ranks: each waits until WORLD_SIZE of them have connected to"
        " MASTER_ADDR:MASTER_PORT. Compare the world size with the processes that run, address and"
        " port on all nodes, and check that a firewall lets the port through.",
    ),
    _activity(
        r"\bas PyTorch extensions root\b|\bEmitting ninja build file\b|\bBuilding extension module"
        r"|\bLoading extension module\b|\bDetected CUDA files, patching ldflags\b"
        r"|\bCreating extension directory\b",
        "while an extension is compiled",
        "and no compiler runs, delete the file named `lock` in the extension's folder, by default"
        " below ~/.cache/torch_extensions: a process that was killed has left it.",
    ),
    _activity(
        r"(?i)^\W*(?:\[?rank\W?\d+\W*)?(?:map|filter|tokeniz\w+|running tokenizer\w*|packing"
        r"|grouping|generating \w+ split|converting format)\b[^|]{0,80}\d+ ?%\|",
        "while the data is prepared",
        "use fewer processes (`num_proc`, `preprocessing_num_workers`). If it only takes long,"
        " prepare the data before the launch, in a run of one process: the other ranks wait for it,"
        " and give up after the process group's timeout.",
    ),
    _activity(
        r"(?i)\bloading (?:checkpoint|safetensors checkpoint|weights|model)\b[^|]{0,40}\d+ ?%\|"
        r"|\bloading checkpoint shards\b",
        "while weights are loaded",
        "check the host's memory (`free -h`, and `dmesg` for a killed process): every rank may read"
        " all weights. Copy them to a local disk if a shared one is slow.",
    ),
    _activity(
        r"(?i)^(?!.*\bloading\b).*\b(?:saving (?:the )?(?:model|checkpoint|optimizer|state)"
        r"|saving \w+ checkpoint)",
        "while a checkpoint is saved",
        "save on all ranks: sharded weights are collected from each of them, so saving only on rank"
        " 0 waits forever. Otherwise check that the disk isn't full (`df -h`).",
    ),
    _activity(
        r"(?i)\*+ running (?:evaluation|prediction) \*+|^\W*(?:evaluating|validating)\b",
        "in an evaluation",
        "evaluate on all ranks, on the same number of batches: a rank that does fewer, or none,"
        " leaves the others waiting.",
    ),
    _activity(
        r"\*+ Running training \*+|^\W*0%\|[^|]*\| *0/\d+ \[|(?i:\bstart(?:ing)? training\b)",
        "before the first training step",
        "look at where each rank waits: `py-spy dump --pid PID` for one worker of each rank. Try"
        " loading data without extra processes (`num_workers=0`), and NCCL_DEBUG=INFO to see"
        " whether the ranks connect.",
    ),
)
"""The activities, the most specific first."""


def activity_in(lines: Sequence[str], *others: Activity) -> Activity | None:
    """The activity that the last of these lines shows, if any.

    Args:
        lines: the last lines of a log.
        others: less specific activities to look for as well.
    """
    for line in islice(reversed(lines), MOST_LAST):
        activity = next((one for one in (*ACTIVITIES, *others) if one.lines.search(line)), None)
        if activity is NCCL and any(OF_HCCL.search(other) for other in lines):
            return None
        if activity is not None:
            return activity
    return None
