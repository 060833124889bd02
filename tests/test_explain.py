"""Explanations, word for word, of tiny worlds."""

from __future__ import annotations

from pathlib import Path

from safe_launch import terminal
from safe_launch.explain import (
    correction_rows,
    dead_end_rows,
    death_text,
    plan_rows,
    unexplained_rows,
)
from safe_launch.failure import Diagnosis, FailureRecord, Finding, Frame, Role
from safe_launch.plan import NoPlan, Plan
from safe_launch.resolve import as_asked, resolve
from safe_launch.settings import Fact
from test_resolve import (
    CURRENT,
    HARDWARE,
    LORA3,
    OLDER,
    OUTSIDE,
    REQUEST,
    ZERO2,
    ZERO3,
    known_rules,
    rule,
    world,
)


def page(rows: list[tuple[str, str]]) -> str:
    """Rows as they are printed."""
    return "\n".join(terminal.table(rows, indent=0))


def test_a_plan_with_a_change() -> None:
    """What runs, on what, and old -> new with its source, cause and reference."""
    plan = resolve(REQUEST, world(LORA3), HARDWARE, known_rules(OLDER))
    assert isinstance(plan, Plan)
    assert page(plan_rows(plan)) == (
        "run      train.py\n"
        "on       2 x cpu (--nproc 2; 2 cores, 16 GiB of host memory)\n"
        "preset   ZeRO stage 3, reentrant checkpointing\n"
        "change   gradient_checkpointing: non_reentrant -> reentrant (asked for by\n"
        "         --gradient_checkpointing)\n"
        "         Under ZeRO-3 non-reentrant checkpointing recomputes with released parameters\n"
        '         ("Recomputed values ... have different metadata ... shape [0]")\n'
        "         https://github.com/deepspeedai/DeepSpeed/pull/8148"
    )


def test_a_correction_says_what_it_costs() -> None:
    """A fall back to stage 2 is counted in the model's own parameters."""
    before = as_asked(REQUEST, world(ZERO3), HARDWARE)
    after = resolve(REQUEST, world({**ZERO3, OUTSIDE: True}), HARDWARE, known_rules(CURRENT))
    assert isinstance(after, Plan)
    model = {"trainable_parameters": 2**30, "frozen_parameters": 2**30}
    record = FailureRecord(rank=0, at=0.0, model=model)
    assert page(correction_rows(after, before, record)) == (
        "change   zero_stage: 3 -> 2\n"
        "         https://github.com/deepspeedai/DeepSpeed/issues/7078\n"
        "costs    every rank now holds the parameters whole instead of one part in 2: about 2\n"
        "         GiB more a rank in 16 bit"
    )


def test_deaths_in_words() -> None:
    """An exception, an exit code, a signal."""
    raised = FailureRecord(rank=3, at=0.0, exception="builtins.KeyError", step=1)
    left = FailureRecord(rank=1, at=0.0, exit_code=7)
    killed = FailureRecord(rank=0, at=0.0, signal=11, exit_code=139)
    assert [death_text(one) for one in (raised, left, killed)] == [
        "rank 3 raised KeyError after 1 step",
        "rank 1 left with exit code 7",
        "rank 0 was ended by SIGSEGV (invalid memory access in native code)",
    ]


def test_an_unexplained_failure_names_who_followed() -> None:
    """The user's innermost line, and the ranks that failed later by how much."""
    frames = (Frame("/u/train.py", 9, "main", "step()"), Frame("/lib/torch.py", 1, "f", "g()"))
    first = FailureRecord(
        rank=2, at=1.0, exception="builtins.KeyError", frames=frames, user_files=("/u/train.py",)
    )
    second = FailureRecord(rank=0, at=1.02, exception="builtins.RuntimeError")
    findings = tuple(Finding(one, Role.INITIATING, None) for one in (first, second))
    assert page(unexplained_rows(Diagnosis(findings), Path("run/rank-2.log"))) == (
        "what     rank 2 raised KeyError; nothing known explains it, so nothing is changed\n"
        "where    /u/train.py:9 in main: step()\n"
        "then     rank 0 (20 ms later) failed too\n"
        "log      run/rank-2.log"
    )


def test_a_dead_end_lists_what_contradicts() -> None:
    """The smallest set of rules that together leave nothing."""
    rules = [rule(gradient_checkpointing=mode) for mode in ("off", "reentrant", "non_reentrant")]
    refused = resolve(REQUEST, world({**ZERO2, Fact.BLOCK_RUNS_TWICE: True}), HARDWARE, rules)
    assert isinstance(refused, NoPlan)
    assert page(dead_end_rows(refused)) == (
        "tried    12 presets; each is known to fail. Together rule out all:\n"
        "because  gradient_checkpointing=reentrant: a rule of this test\n"
        "because  gradient_checkpointing=non_reentrant: a rule of this test\n"
        "because  gradient_checkpointing=off: a rule of this test"
    )
