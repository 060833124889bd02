"""Recognizes ranks that waited too long for a single busy rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from ...core.quotation import shortened
from ...system.redaction import redacted
from .step import Case, Step

TIMEOUT = re.compile(r"\btime(?:d )?-?out\b|\bTimed out\b", re.IGNORECASE)
OF_WAITING = re.compile(r"Watchdog|watchdog|ProcessGroup(?:NCCL|HCCL|Gloo)|Timed out waiting")
"""Lines of the waiting ranks."""
MOST = 6
"""Lines to inspect before the first line of a waiting rank."""
LONGEST = 90
"""Maximum characters to quote of a line."""
LONGER = (
    "The others wait longer with `init_process_group(timeout=timedelta(hours=2))`, with the Trainer"
    " by `--ddp_timeout 7200`."
)
WAITED = "(“{line}”) while the others waited."


@dataclass(frozen=True, slots=True)
class Business:
    """An activity that may keep a rank busy."""

    words: re.Pattern[str]
    do: str
    more: str = LONGER


KINDS = (
    Business(
        re.compile(r"(?i)\b(?:tokeniz|pre-?process)|\bMap(?: \(|:)|^generating \w+ split"),
        "Prepare the data once before the launch, in a run of one process, or raise the process"
        f" group's timeout: a rank was at it {WAITED}",
    ),
    Business(
        re.compile(r"(?i)\b(?:scanning|caching|downloading|building (?:the )?(?:index|cache))\b"),
        "Have it done once before the launch, by one process, or raise the process group's"
        f" timeout: a rank was at it {WAITED}",
    ),
    Business(
        re.compile(
            r"(?i)\b(?:data|loader|iterator|dataset)\b.{0,20}\bexhausted\b|\bStopIteration\b"
            r"|\bepoch \d+ (?:is )?(?:done|finished|ended)\b|\b\d+ batches this epoch\b|\buneven\b"
        ),
        "Give every rank the same number of batches (`drop_last=True`, or repeat and cut the data):"
        f" a rank had no more {WAITED}",
        "Under DDP `torch.distributed.algorithms.Join` lets ranks end at different steps.",
    ),
    Business(
        re.compile(r"(?i)\bsav(?:e|ing)\b|\bcheckpoint\b|\bstate dict\b|\bwriting\b"),
        "Raise the process group's timeout, or save less and to a faster disk: a rank was saving"
        f" {WAITED}",
        f"{LONGER} An adapter alone, or a sharded or asynchronous checkpoint, is written sooner.",
    ),
    Business(
        re.compile(r"(?i)\beval(?:uat\w*)?\b|\bvalidat(?:e|ing|ion)\b"),
        "Evaluate on all ranks or on fewer samples, or raise the process group's timeout: a rank"
        f" was evaluating {WAITED}",
    ),
)
"""Activities by lines, the most specific first."""
STEP = re.compile(r"\bloss\b", re.IGNORECASE)
"""A line of a training step."""


def busy_rank(case: Case) -> Step | None:
    """Reports a rank's last activity before the others' timeout."""
    if not TIMEOUT.search(case.message):
        return None
    before = takewhile(lambda line: not OF_WAITING.search(line), case.record.log_tail)
    lines = [line for line in before if line.strip() and not STEP.search(line)][-MOST:]
    for kind in KINDS:
        line = next((line for line in reversed(lines) if kind.words.search(line)), None)
        if line is not None:
            quoted = shortened(redacted(" ".join(line.split())), LONGEST)
            return Step(f"{kind.do.format(line=quoted)} {kind.more}")
    return None
