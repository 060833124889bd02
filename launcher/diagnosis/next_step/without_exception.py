"""Advises on a run that failed without an exception: it ended, hangs, or has learned nothing."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping

from ...core.quotation import shortened
from ...system.redaction import redacted
from .step import Basis, Case, Step

KILLED = (
    "Something outside the process killed it, mostly the kernel for want of host memory: `dmesg -T"
    " | grep -i -E 'oom|killed'` on the node, `sacct -j JOB --format=State,MaxRSS` or `kubectl"
    " describe pod` say whether"
)
CRASHED = (
    "Native code crashed: `python -X faulthandler SCRIPT` prints the Python line. Suspect, in this"
    " order, extensions and a torch that were built for other versions or another kind of GPU, a"
    " driver, and the hardware; the same rank or node each time means the hardware"
)
SIGNALS: Mapping[int, str] = {
    signal.SIGKILL: KILLED,
    signal.SIGSEGV: CRASHED,
    signal.SIGILL: CRASHED,
    signal.SIGFPE: CRASHED,
    signal.SIGBUS: (
        "Memory that was mapped couldn't be had, mostly /dev/shm of a container: `docker run"
        " --shm-size=16g` or `--ipc=host`"
    ),
    signal.SIGABRT: (
        "A library gave up, and has said why in the lines above, or in the log of this rank alone"
    ),
    signal.SIGTERM: (
        "Somebody asked it to stop: the scheduler (time limit, preemption), the launcher after"
        " another rank's end, or a person"
    ),
    signal.SIGINT: "Somebody pressed Ctrl+C, or the scheduler sent it: nothing is to be mended",
}
"""The meaning of an exit by signal."""
WINDOWS: Mapping[int, str] = {
    0xC0000005: f"0xC0000005 is an access violation. {CRASHED}",
    0xC000001D: f"0xC000001D is an illegal instruction. {CRASHED}",
    0xC0000094: f"0xC0000094 is a division by zero in native code. {CRASHED}",
    0xC00000FD: f"0xC00000FD is a stack overflow. {CRASHED}",
    0xC0000374: f"0xC0000374 is a damaged heap. {CRASHED}",
    0xC0000409: f"0xC0000409 is native code that gave up. {CRASHED}",
    0xC0000135: "0xC0000135: a DLL wasn't found. Install what the package needs (for torch the"
    " Visual C++ runtime), or install it anew",
    0xC000013A: f"0xC000013A: {SIGNALS[signal.SIGINT]}",
}
"""The meaning of a status of Windows (NTSTATUS, in Microsoft's MS-ERREF)."""
STOPPED_EARLY = re.compile(
    r"\bearly[ -]?stopp(?:ing|ed)\b(?!['\"]?\s*[=:(])|\bstopp(?:ing|ed) (?:the )?training\b"
    r"|\bpatience\b.{0,30}\b(?:exceeded|exhausted|reached|over|used up)\b",
    re.IGNORECASE,
)
"""A loop's line as it ends before the last epoch."""
NONE = "the training ended without an optimizer step: line {line} counts none"
FEWER = (
    "the training ended without an optimizer step: {count} {what} are fewer than one batch"
    " ({name} {size})"
)
"""Messages of the evidence in a log."""
OF_STEPS = re.compile(
    r"ended without an optimizer step: "
    r"(?:(?P<count>\d+) (?P<what>\w+) .*\((?P<name>\S+) (?P<size>\d+)\))?"
)
STILL = "nothing is learned: {what} is {value} from line {first} to the end"
NORM, LOSS = "the gradient's norm", "the loss"
"""What the message of the evidence in a log is about."""
OF_NUMBER = re.compile(
    rf"nothing is learned: (?P<what>{NORM}|{LOSS}) is (?P<value>\S+) from line \d+ to the end"
)
LONGEST = 100
"""Maximum characters to quote of a line."""
LN_2 = round(math.log(2), 3)
"""The loss of DPO and its kin if the policy gives what the reference gives."""
OF_GROUPS = re.compile(r"\breward[\w/]*(?:std|mean)\b|\bgrpo\b|\badvantages?\b", re.IGNORECASE)
"""Words of trainings that compare the answers of a group."""
GROUPS = (
    "Look at the rewards: if all answers of a group get the same, nothing has a gradient. Check the"
    " reward function by hand, on a right and on a wrong answer, and sample with more variety."
)
LABELS = (
    "Look at the labels of one batch: if all are -100, as when prompts fill the maximum length or a"
    " template for responses isn't found in the text, nothing has a gradient. Otherwise see what is"
    " trained: parameters that don't require a gradient, an adapter loaded without"
    " `is_trainable=True`, or reentrant checkpointing without"
    " `model.enable_input_require_grads()`."
)
PREFERRED = (
    "See that policy and reference differ after the first step: 0.693 is the loss if they give the"
    " same. The reference may follow the policy, the trained adapter may be off or not in the"
    " optimizer, or chosen and rejected answers may be the same."
)
OPTIMIZER = (
    "See that the optimizer trains the model: its parameters are collected after FSDP, ZeRO or an"
    " adapter has replaced the model's (in one `prepare` call, or later), and the learning rate"
    " isn't 0."
)
CHECKS = " Under safe-launch, the checks of a run name the parameters."


def ended_silently(case: Case) -> Step | None:
    """The meaning of an end without an error, and how to find the error."""
    record = case.record
    if record.exception or (record.exit_code is None and record.signal is None):
        return None
    number = record.signal
    if number is None and record.exit_code is not None and record.exit_code > 128:
        number = record.exit_code - 128
    if meaning := SIGNALS.get(number or 0) or WINDOWS.get(record.exit_code or 0):
        return Step(f"{meaning}.")
    who = "the worker" if record.rank is None else f"rank {record.rank}"
    return Step(
        f"Why {who} left isn't in this log: look further up, or in the log of {who} alone. torchrun"
        " writes one for each rank with `--log-dir logs --redirects 3`; diagnose that folder.",
        Basis.OPEN,
    )


def stopped_early(case: Case) -> Step | None:
    """How to end a training on all ranks, if one has stopped before the others."""
    if case.record.exception or not STOPPED_EARLY.search(case.message):
        return None
    return Step(
        "Stop all ranks in the same step: let one rank decide and broadcast it, or all-reduce the"
        " measured value before it is compared. Here one rank seems to have stopped alone"
        f" (“{shortened(redacted(case.message), LONGEST)}”), and the others waited for it. To train"
        " on, raise its patience or threshold, or turn early stopping off."
    )


def no_step(case: Case) -> Step | None:
    """Names the number to change, so that there is at least one batch."""
    match = OF_STEPS.search(case.message) if not case.kind else None
    if match is None:
        return None
    after = (
        "The saved weights are the untrained ones. A newer version of the framework may train the"
        " last, smaller batch, too."
    )
    if match["count"]:
        return Step(
            f"Lower `{match['name']}` to {match['count']} or less, or give at least"
            f" {match['size']} {match['what']}: the only batch isn't full, is dropped, and nothing"
            f" is ever updated. {after}"
        )
    return Step(
        "Give more samples or epochs, or a smaller batch (per rank, ranks and accumulation"
        f" multiplied), so that there is at least one step: the loop has nothing to do. {after}"
    )


def nothing_learned(case: Case) -> Step | None:
    """Names what to look at first, by the number that doesn't move."""
    match = OF_NUMBER.search(case.message) if not case.kind else None
    if match is None:
        return None
    if match["what"] == NORM or float(match["value"]) == 0:
        return Step((GROUPS if OF_GROUPS.search(case.around) else LABELS) + CHECKS)
    is_preferred = round(float(match["value"]), 3) == LN_2
    return Step((PREFERRED if is_preferred else OPTIMIZER) + CHECKS)
