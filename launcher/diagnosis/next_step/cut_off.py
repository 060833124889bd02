"""Advises on a traceback that ends before its exception, by the call in which it failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...evidence.failure_record import Frame
from .bare_assertion import advice, unmet_by
from .step import Basis, Case, Step

CUT_OFF = "the log ends before the exception"
"""End of the message of the evidence in a log."""
ADD = "Add what follows the log's last line: the exception and its message are missing."
COLLECTIVES = r"all_reduce|all_gather\w*|broadcast\w*|barrier|reduce_scatter\w*|all_to_all\w*"
FILES = (
    r"\b_?rmtree\w*\b|\b(?:os|shutil)\.(?:rename|replace|remove|rmdir|unlink|makedirs|mkdir|move)\b"
    r"|\.(?:mkdir|unlink|rmdir)\("
)
"""Calls that change folders and files."""
WAITING = (
    rf"^_?(?:{COLLECTIVES}): |\bdist(?:ributed)?\.(?:{COLLECTIVES})\b|_verify_param_shape"
    r"|_sync_module_states"
)
"""Functions and calls in which ranks wait for each other."""
CALLS = (
    (
        FILES,
        (
            "See whether several ranks delete, rename or create the same folder at once, and"
            " whether the disk allows it; let one rank do it."
        ),
    ),
    (
        r"\b_batch_assertion\b",
        (
            "Set `train_batch_size` to micro batch * accumulation * ranks, or delete it from the"
            " DeepSpeed configuration: mostly this check fails as the three don't fit the ranks."
        ),
    ),
    (
        r"load_state_dict|load_checkpoint|set_\w*state_dict|\btorch\.load\b|\bload_file\b|\bsafe_open\b",
        (
            "Compare the file with the model: loading fails mostly since names or shapes differ"
            " (another model, vocabulary or version), or since the file is damaged."
        ),
    ),
    (
        r"^[A-Za-z]:\\(?!.*gloo).*\binit_process_group",
        (
            'Take `backend="gloo"`, or one process (a single GPU), or run it on Linux or in WSL 2:'
            " on Windows torch has no NCCL. Warnings of sockets there (10049) are harmless."
        ),
    ),
    (
        r"init_process_group|\bTCPStore\b|\brendezvous\b|init_distributed",
        (
            "See whether all ranks start and reach MASTER_ADDR:MASTER_PORT, whether the port is"
            " free, and whether this torch has the backend: there is no NCCL on Windows or without"
            " CUDA."
        ),
    ),
    (
        WAITING,
        (
            "Look at the other ranks' output first: a collective fails mostly as another rank has"
            " failed or does something else. If none has, run with `NCCL_DEBUG=INFO`."
        ),
    ),
    (
        r"^(?:_worker_loop|\w*collate\w*|_next_data|__getitem__): ",
        "Load the data in the main process (`num_workers=0`) to see which sample fails, and why.",
    ),
    (
        r"\b(?:torch\.)?(?:cat|stack|vstack|hstack|concat(?:enate)?)\(",
        (
            "Compare the shapes of what is joined there: it fails mostly as samples, or ranks, have"
            " different lengths. Pad them alike; accelerate joins no batches of several ranks with"
            " `dispatch_batches=False`."
        ),
    ),
    (
        r"\bfrom_pretrained\b",
        (
            "See that the name or folder is right and complete, and that the library knows this"
            " model; `python -c` with that call alone shows the exception."
        ),
    ),
)
"""Calls, and what mostly fails in them."""
IMPORTS = re.compile(r"(?:from [A-Za-z_][\w.]* )?import [\w., ]+")
NEAR = 4
"""Maximum innermost frames to search for a call."""


def cut_off(case: Case) -> Step | None:
    """What to look at in a traceback without its exception, and what to add."""
    if case.kind or not case.message.endswith(CUT_OFF):
        return None
    is_glued = " " in case.frames[-1].function if case.frames else False  # with its message
    meaning = "" if is_glued else next(_meanings(case.frames), "")
    meaning = _of_check(case.frames[-1]) or meaning if case.frames else meaning
    return Step(f"{meaning} {ADD}".strip(), Basis.OPEN)


def _of_check(frame: Frame) -> str:
    """What a check that failed is about; empty if the line isn't one."""
    unmet = unmet_by(frame.source)
    if unmet is None:
        return ""
    return advice(unmet, frame) if unmet.settings else f"The check in it failed: {unmet.sentence}."


def waits(frames: tuple[Frame, ...]) -> bool:
    """Whether a traceback's innermost calls are collective operations."""
    near = (f"{frame.function}: {frame.source}" for frame in frames[: -NEAR - 1 : -1])
    return any(re.search(WAITING, text) for text in near)


def _meanings(frames: tuple[Frame, ...]) -> Iterator[str]:
    """What mostly fails in the innermost calls, the last first."""
    if frames and IMPORTS.fullmatch(frames[-1].source):
        yield (
            f'Run `python -c "{frames[-1].source}"` to see the exception: a package is missing, or'
            " two don't fit each other."
        )
    for frame in frames[: -NEAR - 1 : -1]:
        place = frame.file if "\\" in frame.file else ""
        texts = (f"{frame.function}: {frame.source}", f"{place} {frame.source}")
        yield from (do for words, do in CALLS if any(re.search(words, text) for text in texts))
