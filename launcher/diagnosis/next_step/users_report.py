"""Advises how to find out more if only a user reports that a run ended or hangs."""

from __future__ import annotations

import re

from .step import Basis, Case, Step

ENDS_ITSELF = r"(?:ends?|exits?|dies?|stops?|crash(?:es)?|aborts?|quits?)"
ENDED = re.compile(
    r"\b(?:then|and|until)\b[^.]{0,40}\b(?:process(?:es)?|job|run|training|pods?|ranks?|it"
    rf"|everything)\b[^.]{{0,20}}\b{ENDS_ITSELF}\b"
    rf"|\b{ENDS_ITSELF}(?: \w+)? (?:at once|immediately|silently|right away|there|here"
    r"|without (?:an? )?(?:error|message|output|traceback))\b"
    r"|\bjust (?:ends|exits|dies|stops|quits)\b|自动退出|直接(?:退出|中断)|闪退",
    re.IGNORECASE,
)
STANDS = re.compile(
    r"\b(?:it|job|run|script|training|trainer|program|process(?:es)?|ranks?|nodes?|gpus?|everything)"
    r"\b[^.?]{0,40}\b(?:hangs|hung|freezes|froze|(?:is|are|gets?|got|was|being) stuck|stalls)\b"
    r"|^(?:hangs|stuck|freezes) (?:at|in|on|after|here|forever|for)\b"
    r"|\bnothing (?:more |else )?(?:is|gets|was) (?:printed|logged|happening)\b"
    r"|\bno (?:further|more) (?:output|progress)\b|卡住|卡死|一直卡",
    re.IGNORECASE,
)


def users_report(case: Case) -> Step | None:
    """How to find the rank that hangs, or the error of a run that ended without one."""
    if case.record.exception:
        return None
    if STANDS.search(case.message):
        return Step(
            "Find out where each rank stands: `py-spy dump --pid PID` for the process of each rank,"
            " on every node. Ranks in a collective wait for the rank that isn't in it; if all are"
            " in the first one, the ranks don't reach each other. `NCCL_DEBUG=INFO` (HCCL:"
            " `ASCEND_GLOBAL_LOG_LEVEL=1`) shows the interface that they use. safe-launch names the"
            " rank and its line.",
            Basis.OPEN,
        )
    if ENDED.search(case.message):
        return Step(
            "The reason isn't in this log: see the exit code (`echo $?`), each rank's log"
            " (torchrun: `--log-dir logs --redirects 3`), and `dmesg -T | grep -i -E 'oom|killed'`"
            " on the node.",
            Basis.OPEN,
        )
    return None
