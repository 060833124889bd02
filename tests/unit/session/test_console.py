"""The exact console output of a launch for each event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Diagnosis, Finding, Role
from safe_launch.checkpoints.resume_point import Start
from safe_launch.core.errors import Refused
from safe_launch.core.settings import Setting
from safe_launch.diagnosis.attempt import Attempt, Failed, Seen, Succeeded, Superseded
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.search import as_asked, resolve
from safe_launch.session.console import Reporter
from safe_launch.session.decision import End, RunState
from safe_launch.system import terminal
from support.attempts import entry_of
from support.worlds import CURRENT, HARDWARE, REQUEST, TWICE, ZERO2, known_rules, rule, world

WORKLOAD = world({**ZERO2, TWICE: True})
ASKED = as_asked(REQUEST, WORKLOAD, HARDWARE)
BETTER = resolve(REQUEST, WORKLOAD, HARDWARE, known_rules(CURRENT))
ATTEMPT = Attempt(0, ASKED, Path("run/attempt-1"))
RECORD = FailureRecord(
    *(0, 1.0, "builtins.RuntimeError", "odd"),
    traceback="Traceback: odd\n",
    exit_code=3,
    log_tail=("Traceback: odd",),
)
ROOT = Finding(RECORD, Role.INITIATING, None)
FAILED = RunState(REQUEST, WORKLOAD).after(Failed(ATTEMPT, (RECORD,)), ROOT)
SAY = Reporter()


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines printed since, without the launcher's prefix."""
    return capsys.readouterr().err.replace(terminal.MARK, "").splitlines()


def test_a_relaunch(capsys: pytest.CaptureFixture[str]) -> None:
    """The changes, their costs, and the resume point."""
    assert isinstance(BETTER, Plan)
    SAY.relaunching(BETTER, FAILED, Start(None, sentence="resumes from checkpoint-4"))
    lines = said(capsys)
    assert lines[0] == "  change   gradient_checkpointing: reentrant -> non_reentrant (from"
    assert lines[1].startswith("           --gradient_checkpointing): ZeRO-2 gets a parameter's")
    assert lines[-2:] == ["  start    resumes from checkpoint-4", "relaunching: attempt 2"]


def test_a_relaunch_of_the_same_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """The failure was transient."""
    SAY.relaunching(ASKED, FAILED, Start(None))
    assert said(capsys) == [
        "  change   none: the failure is transient",
        "relaunching: attempt 2",
    ]


def test_a_relaunch_before_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """No attempt failed, and each change has its cause."""
    assert isinstance(BETTER, Plan)
    state = RunState(REQUEST, WORKLOAD).after(Superseded(ATTEMPT, Seen({})), None)
    SAY.relaunching(BETTER, state, Start(None))
    lines = said(capsys)
    assert lines[0] == (
        "attempt 1: stopped before a failure: what the workers reported is known to fail"
    )
    assert any("has already been reduced" in line for line in lines)


def test_what_would_be_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """The reason for not changing it is shown."""
    assert isinstance(BETTER, Plan)
    SAY.not_relaunched(BETTER, FAILED, Refused("--fix suggest allows 0"))
    lines = said(capsys)
    assert lines[0].startswith("  suggest  gradient_checkpointing: reentrant -> non_reentrant")
    assert lines[-1] == "not relaunched: --fix suggest allows 0"
    root = replace(ROOT, entry=entry_of("zero2-gradient-reduced-twice"))
    SAY.not_relaunched(BETTER, replace(FAILED, findings={0: root}), Refused("--fix suggest"))
    told = " ".join(" ".join(said(capsys)).split())
    assert "do On the Trainer: " in told
    assert "--gradient_checkpointing_kwargs" in told
    assert "else Set `use_reentrant=False`" in told


def test_what_is_settled_while_the_workers_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """The place, change and reason; under `suggest` the proposal."""
    assert isinstance(BETTER, Plan)
    for is_made in (True, False):
        Reporter().settled(
            "TrainingArguments, train.py:29", BETTER, BETTER.changes, is_made=is_made
        )
        where, what, *_ = said(capsys)
        first, second = ("settled  at", "change  ") if is_made else ("asked    at", "suggest ")
        assert where == f"{first} TrainingArguments, train.py:29, before any step"
        assert what.startswith(f"{second} gradient_checkpointing: reentrant -> non_reentrant")


def test_a_plan_that_had_assumed_other_values(capsys: pytest.CaptureFixture[str]) -> None:
    """Its changes are reverted."""
    assert isinstance(BETTER, Plan)
    Reporter().settled("TrainingArguments, train.py:29", BETTER, [], is_made=True)
    assert said(capsys)[1].startswith("change   none: as asked; the plan had assumed")


def test_what_was_settled_can_be_written_down(capsys: pytest.CaptureFixture[str]) -> None:
    """Advice is given even without a failed attempt."""
    assert isinstance(BETTER, Plan)
    known = WORKLOAD.known[Setting.GRADIENT_CHECKPOINTING]
    seen = Seen({}, asked=((Setting.GRADIENT_CHECKPOINTING, known),))
    done = Succeeded(replace(ATTEMPT, plan=BETTER), seen=seen)
    state, say = RunState(REQUEST, WORKLOAD).after(done, None), Reporter()
    say.finished(state, End(0), Path("run"))
    assert "so that" not in " ".join(said(capsys))
    say.settled("TrainingArguments, train.py:29", BETTER, BETTER.changes, is_made=True)
    said(capsys)
    say.finished(state, End(0), Path("run"))
    first, second, *_ = said(capsys)
    assert first == "to make this permanent:"
    assert second.startswith("  write    the script's arguments: ")


@pytest.mark.parametrize("name", [None, "zero2-gradient-reduced-twice"])
def test_a_failed_attempt(capsys: pytest.CaptureFixture[str], name: str | None) -> None:
    """Known or unknown, with a pointer to more."""
    entry = None if name is None else entry_of(name)
    SAY.attempt_failed(ATTEMPT, Diagnosis((replace(ROOT, entry=entry),)), None, follows=True)
    lines = said(capsys)
    end = "not known" if name is None else name
    assert lines[0] == f"attempt 1: failed: rank 0 raised RuntimeError ({end})"
    assert lines[1] == "  what     RuntimeError: odd"
    assert lines[-1] == (lines[1] if name is None else f"  more     safe-launch explain {name}")


def test_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """All causes, and what the user can do about the last failure."""
    rules = [rule(precision="bf16")]
    refused = resolve(REQUEST, world({Setting.PRECISION: "bf16"}), HARDWARE, rules)
    assert isinstance(refused, NoPlan)
    SAY.no_plan(refused, replace(ROOT, entry=entry_of("accelerator-out-of-memory")))
    lines = said(capsys)
    assert lines[0] == "nothing is left to launch"
    assert any("a rule of this test" in line for line in lines)
    assert any(line.startswith("  do       On the Trainer: set `--per_device") for line in lines)


def test_quiet_leaves_out_what_is_as_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes are always printed."""
    assert isinstance(BETTER, Plan)
    SAY.planned(BETTER, [])
    assert said(capsys)[0] == "plan     1 change; on 2 x cpu"
    monkeypatch.setattr(terminal, "_quiet", True)
    SAY.planned(BETTER, [])
    assert said(capsys)[0].startswith("change   gradient_checkpointing")
    SAY.planned(ASKED, [])
    assert said(capsys) == []


def test_a_healthy_launch_as_asked_is_told_in_three_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One for the plan and two for the end; all facts under `--verbose`."""
    batch = {Setting.MICRO_BATCH: 4, Setting.ACCUMULATION: 2, Setting.PRECISION: "bf16"}
    workload = replace(
        world({**ZERO2, **batch}),
        not_understood=("--batch_size",),
        unmodelled=("--optim galore_adamw: AdamW's states are assumed",),
    )
    placed = replace(REQUEST.placement, sources=(("nodes", "2 (SLURM_NNODES)"),))
    plan = as_asked(replace(REQUEST, placement=placed), workload, HARDWARE)
    done = RunState(REQUEST, workload).after(Succeeded(replace(ATTEMPT, plan=plan)), None)
    SAY.planned(plan, [])
    SAY.finished(done, End(0), tmp_path)
    first, second, third = said(capsys)
    assert first == "plan     as asked: nothing is changed; on 2 x cpu; global batch 16"
    assert second == "attempt 1: succeeded"
    assert third == f"exit code 0; logs and records: {tmp_path}"
    monkeypatch.setattr(terminal, "_verbose", True)
    SAY.planned(plan, [])
    told = "\n".join(said(capsys))
    for part in ("not understood: --batch_size", "AdamW's states", "SLURM_NNODES", "bf16"):
        assert part in told


def test_what_a_user_should_know_is_told_of_a_healthy_launch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Notes on settings, devices, placement and doubtful memory."""
    workload = replace(world(ZERO2), notes=("--fsdp without effect",))
    devices = replace(HARDWARE, notes=("the devices differ",))
    placed = replace(REQUEST.placement, sources=(("note", "trains alone"),))
    SAY.planned(as_asked(replace(REQUEST, placement=placed), workload, devices), [])
    notes = ["--fsdp without effect", "the devices differ", "trains alone"]
    assert said(capsys)[1:] == [f"note     {note}" for note in notes]


def test_the_global_batch_stands_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Line breaks don't split it."""
    batch = {Setting.MICRO_BATCH: 4, Setting.ACCUMULATION: 2}
    for length in range(30, 70):
        device = replace(HARDWARE.accelerator, name="d" * length)
        plan = as_asked(REQUEST, world(batch), replace(HARDWARE, accelerator=device))
        SAY.planned(plan, [])
        assert any("global batch 16" in line for line in said(capsys))


def test_the_end_of_a_failed_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The decisive failure and the records' path; earlier output isn't repeated."""
    other = replace(RECORD, message="later", traceback="Traceback: later\n")
    second = replace(ATTEMPT, number=1)
    state = FAILED.after(Failed(second, (other,)), replace(ROOT, record=other))
    SAY.finished(state, End(3, standing=0), Path("run"))
    assert said(capsys) == [
        "exit code 3; logs and records: run",
        "the exit code is that of attempt 1: its corrections led to other failures",
    ]


def test_a_success_at_once_is_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--quiet` prints no line, unless an attempt failed before."""
    monkeypatch.setattr(terminal, "_quiet", True)
    SAY.finished(RunState(REQUEST, WORKLOAD).after(Succeeded(ATTEMPT), None), End(0), Path("run"))
    assert said(capsys) == []
    state = FAILED.after(Succeeded(replace(ATTEMPT, number=1)), None)
    SAY.finished(state, End(0), Path("run"))
    assert said(capsys) == ["attempt 2: succeeded", "exit code 0; logs and records: run"]


def test_the_log_of_a_death_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """Its last output is already on the console, among other ranks'."""
    record = FailureRecord(1, 1.0, signal=9, exit_code=137, log_tail=("one", "two"))
    SAY.attempt_failed(ATTEMPT, Diagnosis((replace(ROOT, record=record),)), None, follows=False)
    *_, last = said(capsys)
    assert last == "  log      run/attempt-1/rank-1.log"


def test_what_is_told_to_whom_wants_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan's command and devices, a correction's cost, and later failures."""
    assert isinstance(BETTER, Plan)
    monkeypatch.setattr(terminal, "_verbose", True)
    SAY.planned(BETTER, [])
    assert "command  train.py" in said(capsys)
    SAY.relaunching(BETTER, FAILED, Start(None))
    assert any(line.startswith("  costs    almost nothing") for line in said(capsys))
    later = replace(ROOT, record=replace(RECORD, rank=1, at=1.02))
    SAY.attempt_failed(ATTEMPT, Diagnosis((ROOT, later)), None, follows=False)
    assert "  then     rank 1 (20 ms later) failed too" in said(capsys)
