"""The whole loop without processes: the attempts that follow from earlier ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.checkpoints.resume_point import Start
from safe_launch.core.choices import Framework
from safe_launch.core.errors import ExitCode, Refused
from safe_launch.core.placement import Placement
from safe_launch.core.request import Fix, LaunchRequest, Limits
from safe_launch.core.settings import Setting
from safe_launch.diagnosis.attempt import Failed
from support.attempts import Ending, fails, loses, ran, sees, stopped_by, succeeds, trains_otherwise
from support.worlds import REQUEST, ZERO2, ZERO3, world

TWICE = "zero2-gradient-reduced-twice"
SECOND = {Setting.GRADIENT_CHECKPOINTING: "non_reentrant"}
THIRD = {Setting.ZERO_STAGE: 1}
BATCH = {Setting.MICRO_BATCH: 2, Setting.ACCUMULATION: 3}


def limited(**limits: object) -> LaunchRequest:
    """The tests' common request with other limits."""
    return replace(REQUEST, limits=replace(Limits(), **limits))  # type: ignore[arg-type]


def test_fails_is_corrected_and_succeeds(tmp_path: Path) -> None:
    """The nearest plan that the failure allows; each attempt leaves records."""
    run = ran(tmp_path, world(ZERO2), fails(TWICE), succeeds)
    assert run.told == [
        f"attempt 1 failed: {TWICE}",
        "relaunching gradient_checkpointing=non_reentrant",
    ]
    assert [dict(plan.overrides) for plan in run.plans] == [{}, SECOND]
    assert (run.end.code, run.end.standing) == (ExitCode.SUCCESS, None)
    assert [outcome.attempt.number for outcome in run.state.outcomes] == [0, 1]
    assert json.loads((tmp_path / "attempt-2" / "plan.json").read_text())["feasible"] is True
    kept = json.loads((tmp_path / "attempt-1" / "failures.json").read_text())
    assert [finding["entry"] for finding in kept["findings"]] == [TWICE]
    rows = [tuple(row) for row in kept["rows"]]
    assert ("more", f"safe-launch explain {TWICE}") in rows
    assert {"do", "why"} <= dict(rows).keys()
    assert not (tmp_path / "attempt-2" / "failures.json").exists()


def test_a_refused_correction_is_known_when_the_failure_is_told(tmp_path: Path) -> None:
    """The advice fits: the first is corrected, the second can't be."""
    memory = "accelerator-out-of-memory"
    run = ran(tmp_path, world(ZERO2), fails(TWICE), fails(memory))
    assert run.told[-2:] == [
        f"attempt 2 failed: {memory}",
        "the model's shape isn't known, so no smaller plan can be computed",
    ]
    assert run.followed == [True, False]


def test_what_is_never_changed_is_not_corrected(tmp_path: Path) -> None:
    """Another setting changes; without one the run ends."""
    kept = ((Setting.GRADIENT_CHECKPOINTING, "/etc/config.yaml"),)
    run = ran(
        tmp_path / "1", world(ZERO2), *(fails(TWICE), succeeds), request=limited(never_changed=kept)
    )
    assert [dict(plan.overrides) for plan in run.plans] == [{}, THIRD]
    both = (*kept, (Setting.ZERO_STAGE, "/etc/config.yaml"))
    run = ran(tmp_path / "2", world(ZERO2), fails(TWICE), request=limited(never_changed=both))
    assert run.told == [f"attempt 1 failed: {TWICE}", "no plan"]
    assert run.end.code == ExitCode.NO_PLAN


def test_a_success_needs_no_words(tmp_path: Path) -> None:
    """One attempt without messages."""
    run = ran(tmp_path, world(ZERO2), succeeds)
    assert (run.told, run.end.code) == ([], 0)


def test_a_transient_failure_is_retried_once(tmp_path: Path) -> None:
    """With the same plan after a pause; then the run ends with a separate code."""
    run = ran(tmp_path, world(ZERO2), fails("npu-busy"), fails("npu-busy", code=7))
    assert run.told == [
        "attempt 1 failed: npu-busy",
        "waiting 0 s: npu-busy is transient",
        "relaunching",
        "attempt 2 failed: npu-busy",
    ]
    assert run.plans[0].preset == run.plans[1].preset
    assert run.end.code == 7


def test_attempts_after_a_transient_failure_wait_too(tmp_path: Path) -> None:
    """Without a pause, a correction or restart would fail as well."""
    endings = (fails("hccp-still-running"), fails(TWICE), fails("odd", step=99), succeeds)
    run = ran(tmp_path, world(ZERO2), *endings, request=limited(max_restarts=1))
    waiting = "waiting 0 s: hccp-still-running is transient"
    assert [line for line in run.told if line.startswith(("waiting", "relaunching"))] == [
        *(waiting, "relaunching"),
        *(waiting, "relaunching gradient_checkpointing=non_reentrant"),
        waiting,
    ]
    assert run.end.code == 0


def test_two_transient_failures_are_retried_each(tmp_path: Path) -> None:
    """Each has its own retry."""
    run = ran(tmp_path, world(ZERO2), fails("npu-busy"), fails("hccp-still-running"), succeeds)
    assert run.end.code == 0
    assert run.state.retried == {"npu-busy", "hccp-still-running"}


def test_superseded_by_what_the_workers_saw(tmp_path: Path) -> None:
    """The next plan avoids a failure before it happens."""
    run = ran(tmp_path, world(ZERO2), sees({"block_runs_twice": True}), succeeds)
    assert run.told == ["relaunching gradient_checkpointing=non_reentrant"]
    assert run.end.code == 0
    assert not run.state.findings
    kept = json.loads((tmp_path / "attempt-1" / "observed.json").read_text())
    seen = {"observed": {"block_runs_twice": True}, "asked": {}, "model": None, "span": None}
    assert kept == seen


@pytest.mark.parametrize(
    ("ending", "code"), [(sees({"block_runs_twice": True}), ExitCode.NO_PLAN), (fails(TWICE), 3)]
)
def test_strict_changes_nothing_later_either(tmp_path: Path, ending: Ending, code: int) -> None:
    """Observations and failures only lead to suggestions."""
    run = ran(tmp_path, world(ZERO2), ending, request=limited(strict=True))
    assert run.told[-1] == "not relaunched: --strict allows no change"
    assert run.end.code == code


def test_a_suspect_correction_falls_back_to_the_next_remedy(tmp_path: Path) -> None:
    """The correction is forbidden, and the training continues with another."""
    run = ran(tmp_path, world(ZERO2), fails(TWICE, step=5), fails("odd", step=0), succeeds)
    assert run.told == [
        f"attempt 1 failed: {TWICE}",
        "relaunching gradient_checkpointing=non_reentrant",
        "attempt 2 failed: unknown, suspect gradient_checkpointing=non_reentrant",
        "relaunching zero_stage=1",
    ]
    assert [dict(plan.overrides) for plan in run.plans] == [{}, SECOND, THIRD]
    assert (run.end.code, run.end.standing) == (0, None)


def test_a_correction_that_trains_otherwise(tmp_path: Path) -> None:
    """It is reverted however late that shows; without another, the first failure counts."""
    first = fails(TWICE, step=5, code=4)
    run = ran(tmp_path / "1", world(ZERO2), first, trains_otherwise, succeeds)
    assert run.told[2:4] == [
        "attempt 2 failed: unknown, suspect gradient_checkpointing=non_reentrant",
        "relaunching zero_stage=1",
    ]
    befores = [outcome.attempt.before for outcome in run.state.outcomes]
    assert [None if each is None else each.number for each in befores] == [None, 0, 0]
    once = limited(fix=Fix.ONCE)
    run = ran(tmp_path / "2", world(ZERO2), first, trains_otherwise, request=once)
    assert (run.end.code, run.end.standing) == (4, 0)


def test_the_first_failure_stands_where_every_correction_is_suspect(tmp_path: Path) -> None:
    """The run ends with its code, whatever the corrections led to."""
    odd = fails("odd", step=0, code=9)
    once = limited(fix=Fix.ONCE)
    run = ran(tmp_path, world(ZERO2), fails(TWICE, step=5, code=4), odd, request=once)
    assert run.told[-1] == "not relaunched: --fix once allows 1"
    assert (run.end.code, run.end.standing) == (4, 0)
    assert run.end.outcome_of(run.state) is run.state.outcomes[0]


def test_a_failure_after_a_suspect_correction_may_be_the_scripts_own(tmp_path: Path) -> None:
    """If it comes at a later step, it decides the exit code."""
    odd, late = fails("odd", step=0), fails("late", step=9, code=6)
    run = ran(tmp_path, world(ZERO2), fails(TWICE, step=5), odd, late)
    assert (run.end.code, run.end.standing) == (6, None)


@pytest.mark.parametrize("number", [2, 15])
def test_interrupted(tmp_path: Path, number: int) -> None:
    """No attempt follows a signal, not even a requested restart."""
    run = ran(tmp_path, world(ZERO2), stopped_by(number), request=limited(max_restarts=3))
    assert (run.end.code, run.told) == (128 + number, [])


def nodes(least: int) -> LaunchRequest:
    """Three nodes of two workers, with a minimum number."""
    placement = Placement(nodes=3, least=least, rank=0, address="head")
    return replace(REQUEST, placement=placement, workers=(2, 2, 2))


def test_a_lost_node_leaves_the_others(tmp_path: Path) -> None:
    """The other nodes train on with the same global batch."""
    workload = world({**ZERO2, **BATCH})
    run = ran(tmp_path, workload, loses(1), succeeds, request=nodes(2))
    assert run.told[0] == "attempt 1 failed: node-lost"
    assert run.plans[1].request.nodes == (2, 2)
    settings = run.plans[1].preset.settings()
    assert settings[Setting.MICRO_BATCH] * settings[Setting.ACCUMULATION] * 4 == 2 * 3 * 6
    assert run.end.code == 0


def test_a_failure_beside_a_lost_node_is_corrected_too(tmp_path: Path) -> None:
    """The next attempt has fewer nodes and another plan."""
    workload = world({**ZERO2, **BATCH})
    run = ran(tmp_path, workload, loses(1, also=TWICE), succeeds, request=nodes(2))
    assert run.told[0] == f"attempt 1 failed: {TWICE}"
    assert run.plans[1].request.nodes == (2, 2)
    assert run.plans[1].overrides[Setting.GRADIENT_CHECKPOINTING] == "non_reentrant"


def test_too_few_nodes_are_left(tmp_path: Path) -> None:
    """The job may succeed elsewhere; a restart on this node can't."""
    request = replace(nodes(3), limits=Limits(max_restarts=2))
    run = ran(tmp_path, world({**ZERO2, **BATCH}), loses(1), request=request)
    said = "2 of 3 nodes are left, and --nnodes asks for 3: try another allocation"
    assert run.told == ["attempt 1 failed: node-lost", said]
    assert run.end.code == ExitCode.RETRY_ELSEWHERE


def test_nothing_is_left(tmp_path: Path) -> None:
    """The failure recurs under every plan; no plan is tried twice."""
    workload = world(ZERO3, Framework.NONE)
    name = "zero3-parameter-outside-forward"
    again: list[Ending] = [fails(name)] * 4
    run = ran(tmp_path, workload, *again)
    presets = [plan.preset for plan in run.plans]
    assert len(set(map(str, presets))) == 4
    assert run.told[-1] == "no plan"
    assert run.end.code == ExitCode.NO_PLAN


def test_the_corrections_are_bounded(tmp_path: Path) -> None:
    """At most six corrections, however many plans there are."""
    run = ran(tmp_path, world(ZERO2), *[fails(TWICE)] * 7)
    assert run.told[-1] == "not relaunched: --fix auto allows 6"
    assert run.end.code == 3


@pytest.mark.parametrize(
    ("fix", "endings", "last"),
    [
        (Fix.SUGGEST, [fails(TWICE)], "not relaunched: --fix suggest allows 0"),
        (Fix.ONCE, [fails(TWICE)] * 2, "not relaunched: --fix once allows 1"),
    ],
)
def test_how_far_it_may_go(tmp_path: Path, fix: Fix, endings: list[Ending], last: str) -> None:
    """`--fix` limits relaunches; further changes are suggested, with a separate exit code."""
    run = ran(tmp_path, world(ZERO2), *endings, request=limited(fix=fix))
    assert run.told[-1] == last
    assert run.end.code == 3


def test_restarts_with_the_same_plan(tmp_path: Path) -> None:
    """Up to --max-restarts, from `prepare`'s resume point; not for a repeated end."""
    start = Start(None, sentence="from the start, after 4 steps: this job has no checkpoint")
    run = ran(
        tmp_path,
        world(ZERO2),
        *(fails("a"), fails("b"), fails("c", code=5)),
        request=limited(max_restarts=2),
        prepare=lambda _plan, _outcomes: start,
    )
    words = f"--max-restarts 2: restarting with the same plan, 1 of 2; {start.sentence}"
    assert run.told[:2] == ["attempt 1 failed: unknown", words]
    assert run.told[-1] == "not restarted (--max-restarts 2): no restart is left"
    assert run.starts == [Start(None), start, start]
    assert len({id(plan) for plan in run.plans}) == 1
    assert run.end.code == 5


def test_restarts_dont_count_as_corrections(tmp_path: Path) -> None:
    """After a restart one correction is still allowed."""
    limits = limited(fix=Fix.ONCE, max_restarts=1)
    run = ran(tmp_path, world(ZERO2), fails("a"), fails(TWICE), succeeds, request=limits)
    assert dict(run.plans[2].overrides) == SECOND
    assert run.end.code == 0


def test_what_cannot_resume_is_not_restarted(tmp_path: Path) -> None:
    """The reason is reported."""
    refused = Refused("cannot resume from checkpoint-4: it is odd")
    run = ran(
        tmp_path,
        world(ZERO2),
        fails("a"),
        request=limited(max_restarts=2),
        prepare=lambda _plan, _outcomes: refused,
    )
    assert run.told[-1] == f"not restarted (--max-restarts 2): {refused.sentence}"


def test_what_cannot_resume_is_not_corrected(tmp_path: Path) -> None:
    """Progress isn't discarded; the run ends with the failure's code."""
    refused = Refused("cannot resume from checkpoint-4: it is odd")
    run = ran(tmp_path, world(ZERO2), fails(TWICE), prepare=lambda _plan, _outcomes: refused)
    assert run.told[-1] == f"not relaunched: {refused.sentence}"
    assert (len(run.plans), run.end.code) == (1, 3)


def test_a_relaunch_begins_where_it_was_made_ready(tmp_path: Path) -> None:
    """`prepare` gets the next plan and all outcomes."""
    asked = []
    start = Start(None, sentence="resumes from checkpoint-4")

    def prepare(plan: object, outcomes: object) -> Start:
        asked.append((plan, outcomes))
        return start

    run = ran(tmp_path, world(ZERO2), fails(TWICE), succeeds, prepare=prepare)
    ((plan, outcomes),) = asked
    assert plan is run.plans[1]
    assert outcomes == run.state.outcomes[:1]
    assert run.starts == [Start(None), start]


def test_a_disk_without_room_doesnt_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that can't be written are skipped with a message."""
    (tmp_path / "file").touch()
    run = ran(tmp_path / "file", world(ZERO2), succeeds)
    assert run.end.code == 0
    assert "the training doesn't depend on it" in capsys.readouterr().err
    assert not isinstance(run.state.last, Failed)


def test_a_lost_node_is_no_correction_of_ours(tmp_path: Path) -> None:
    """Failures beside it aren't blamed on the last correction."""
    workload = world({**ZERO2, **BATCH})
    endings = (fails(TWICE, step=5), loses(1, also="odd"))
    run = ran(tmp_path, workload, *endings, request=nodes(2))
    assert run.told[-1] == "attempt 2 failed: unknown"
    assert (run.end.code, run.end.standing) == (3, None)


def test_no_restart_where_an_earlier_failure_stands(tmp_path: Path) -> None:
    """The failure was a correction's, so a restart wouldn't run the original plan."""
    limits = limited(fix=Fix.ONCE, max_restarts=3)
    endings = (fails(TWICE, step=5), fails("odd", step=0))
    run = ran(tmp_path, world(ZERO2), *endings, request=limits)
    assert run.told[-1] == "not relaunched: --fix once allows 1"
    assert run.end.standing == 0
