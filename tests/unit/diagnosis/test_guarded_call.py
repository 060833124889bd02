"""Code beside a log, in which one rank alone makes a call of all ranks."""

from __future__ import annotations

import pytest
from safe_launch.diagnosis.next_step.choose import surer_step
from support.logs import judged

TIMEOUT = (
    "[rank1]:[E614 10:00:00.1 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=18364, OpType=ALLGATHER, NumelIn=4, NumelOut=8,"
    " Timeout(ms)=4800000) ran for 4804648 milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (
            "if accelerator.is_main_process:\n    if save:\n        accelerator.save_state(out)",
            "accelerator.save_state",
        ),
        ("if dist.get_rank() == 0:\n    engine.save_checkpoint(out)", "engine.save_checkpoint"),
        ("if rank == 0:\n    print(step)\n    dist.barrier()", "dist.barrier"),
        ("if accelerator.is_main_process:\n    log(loss)\naccelerator.save_state(out)", None),
        ("if step % 100 == 0:\n    accelerator.save_state(out)", None),
    ],
)
def test_a_call_of_all_ranks(code: str, call: str | None) -> None:
    """It has to be within the block of a test for the first rank."""
    root = judged(f"We save like this:\n\n{code}\n\nand much later there is\n\n{TIMEOUT}").root
    assert root is not None
    assert root.finding.entry is not None
    step = surer_step(root.finding.entry, root.finding.record)
    named = step.do if step is not None and step.rule == "guarded-call" else None
    assert (named is None) if call is None else (named or "").startswith(f"Call `{call}` on all")
