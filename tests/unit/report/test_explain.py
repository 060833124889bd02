"""Exact explanations of tiny examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Diagnosis, Finding, KnownFailure, Role
from safe_launch.catalogue.reader import read_catalogue, read_entry
from safe_launch.core.constraint import Cause, CauseKind, Constraint
from safe_launch.core.preset import preset_of
from safe_launch.core.request import Limits
from safe_launch.core.script import SourceLocation
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin
from safe_launch.diagnosis.attempt import Attempt, Failed, Interrupted, Seen, Succeeded, Superseded
from safe_launch.diagnosis.root_cause import diagnose
from safe_launch.evidence.failure_record import FailureRecord, Frame, death_text
from safe_launch.planning.plan import Change, NoPlan, Plan
from safe_launch.planning.planner import planned
from safe_launch.planning.search import KEPT, as_asked, resolve
from safe_launch.report.explain_failure import (
    entry_text,
    failure_rows,
    other_rows,
    outcome_text,
    raised_rows,
    unexplained_rows,
)
from safe_launch.report.explain_plan import (
    change_text,
    correction_rows,
    cost_text,
    dead_end_rows,
    launch_rows,
    plan_rows,
    preset_text,
    suggestion_rows,
)
from safe_launch.report.plan_table import document
from safe_launch.report.pod_status import dead_end_line
from safe_launch.system import terminal
from support.attempts import entry_of
from support.tables import table
from support.worlds import (
    CATALOGUE,
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


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("ddp", "find_unused_parameters=True, static_graph=True"),
        ("deepspeed", ""),
        ("fsdp", "FSDP"),
    ],
)
def test_settings_of_ddp_are_told_of_ddp_alone(engine: str, told: str) -> None:
    """The Trainer has them with any engine, but they have no effect there."""
    switches = {Setting.FIND_UNUSED_PARAMETERS: True, Setting.STATIC_GRAPH: True}
    plan = as_asked(REQUEST, world({Fact.ENGINE: engine, **switches}), HARDWARE)
    text = preset_text(replace(plan, preset=preset_of(switches)))
    assert set(text.split(", ")) == set(told.split(", "))


@pytest.mark.parametrize(
    ("origin", "is_told"),
    [
        (Origin.DEFAULT, False),  # the script may override it
        (Origin.FLAG, True),
        (Origin.OBSERVED, True),
    ],
)
def test_assumed_figures_arent_told(origin: Origin, is_told: bool) -> None:
    """Numbers divided by the ranks, or set for a model with adapters."""
    values = {Setting.MICRO_BATCH: 4, Setting.ACCUMULATION: 2, Setting.FIND_UNUSED_PARAMETERS: True}
    known = {setting: Known(value, origin, "") for setting, value in values.items()}
    plan = as_asked(REQUEST, replace(world({}), known=known), HARDWARE)
    text = terminal.table([("preset", preset_text(plan))], indent=0)[0]
    for part in (
        "find_unused_parameters=True",
        "micro batch 4, accumulation 2",
        "; global batch 16",
    ):
        assert (part in text) is is_told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({Fact.FSDP_VERSION: 1, Setting.ACCUMULATION: 2}, "FSDP1, accumulation 2"),
        (
            {Fact.FSDP_VERSION: 2, Setting.RESHARD_AFTER_FORWARD: True},
            "FSDP2, parameters freed after the forward pass",
        ),
        ({Fact.FSDP_VERSION: 2, Setting.RESHARD_AFTER_FORWARD: False}, "FSDP2"),
    ],
)
def test_fsdp_is_told_with_its_version(given: dict[Fact | Setting, Value], told: str) -> None:
    """The version is shown whatever else is known."""
    plan = as_asked(REQUEST, world({Fact.ENGINE: "fsdp", **given}), HARDWARE)
    assert preset_text(plan) == told


def page(rows: list[tuple[str, str]]) -> str:
    """Rows as printed."""
    return "\n".join(terminal.table(rows, indent=0))


def test_a_plan_with_a_change() -> None:
    """What runs, on what, and old -> new with source, cause and reference."""
    plan = resolve(REQUEST, world(LORA3), HARDWARE, known_rules(OLDER))
    assert isinstance(plan, Plan)
    assert page(plan_rows(plan)) == (
        "plan     1 change; on 2 x cpu\n"
        "change   gradient_checkpointing: non_reentrant -> reentrant (from\n"
        "         --gradient_checkpointing): Recomputation under ZeRO-3 finds released\n"
        '         parameters ("Recomputed values ... have different metadata ... shape [0]")\n'
        "         [zero3-recompute-of-released-parameters]\n"
        "open     micro_batch, accumulation, precision: train.py decides, asked at launch\n"
        "keep     --fix suggest launches the requested settings, even if they are known to fail\n"
        "preset   ZeRO stage 3, reentrant checkpointing"
    )
    everything = plan_rows(plan, whole=True)
    assert everything[1][1].endswith("\nhttps://github.com/deepspeedai/DeepSpeed/pull/8148")
    assert page(everything[-2:]) == (
        "command  train.py\non       2 x cpu (--nproc 2; 2 cores, 16.0 GiB of host memory)"
    )


def test_a_change_has_its_own_cause() -> None:
    """Its own cause, or the setting that it depends on."""
    values: dict[Name, Value] = {
        **ZERO2,
        Setting.OFFLOAD: "none",
        Setting.MICRO_BATCH: 4,
        Setting.ACCUMULATION: 1,
    }
    asked = as_asked(REQUEST, world(values), HARDWARE)
    large = rule(micro_batch=4)
    cause = Cause(CauseKind.MEMORY, "memory", "needs 9 GiB a rank at most")
    changes = (
        Change(Setting.MICRO_BATCH, 4, "--micro", 1, Constraint(large.terms, cause)),
        Change(Setting.ACCUMULATION, 1, "--steps", 4, KEPT),
        Change(Setting.OFFLOAD, "none", "ds.json: offload", "optimizer", large),
        Change(Setting.ZERO_STAGE, 2, "--stage", 3, rule(zero_stage=2)),
    )
    new = {change.setting: change.new for change in changes}
    plan = replace(asked, changes=changes, preset=preset_of({**world(values).requested, **new}))
    assert [change_text(plan, change) for change in changes] == [
        "micro_batch: 4 -> 1 (from --micro): if kept, it needs 9 GiB a rank at most",
        "accumulation: 1 -> 4 (from --steps): the global batch is kept",
        (
            "offload: none -> optimizer (from ds.json: offload): "
            "goes with accumulation, micro_batch, zero_stage"
        ),
        "zero_stage: 2 -> 3 (from --stage): a rule of this test [rule]",
    ]


def test_a_correction_says_what_it_costs() -> None:
    """Falling back to stage 2 is counted in the model's parameters."""
    before = as_asked(REQUEST, world(ZERO3), HARDWARE)
    after = resolve(REQUEST, world({**ZERO3, OUTSIDE: True}), HARDWARE, known_rules(CURRENT))
    assert isinstance(after, Plan)
    model = {"trainable_parameters": 2**30, "frozen_parameters": 2**30}
    record = FailureRecord(rank=0, at=0.0, model=model)
    told = ("zero3-parameter-outside-forward",)
    assert page(correction_rows(after, before, record, told, whole=True)) == (
        "change   zero_stage: 3 -> 2 (from --zero_stage)\n"
        "costs    every rank now holds all parameters instead of 1/2 of them: about 2 GiB more\n"
        "         a rank in 16 bit"
    )


NEW_ENTRY = """\
---
id: bad-weather
title: the weather is bad
role: initiating
class: preset
signatures:
  - {exception: RuntimeError, message: rain}
when: {torch: ">=2.0"}
forbids:
  - {zero_stage: 3}
points_at: parameter_reductions
proof: [seen from the window]
sources: [https://example.org/weather]
---

## What happens

It rains, and
everybody gets wet.

More of it.

## What to do

Stay in.
"""


def weather(folder: Path) -> KnownFailure:
    """A made-up known failure."""
    path = folder / "bad-weather.md"
    path.write_text(NEW_ENTRY)
    return read_entry(path)


def test_a_known_failure_in_rows(tmp_path: Path) -> None:
    """The exception, the remedy, the user's line, the reason, and the ignored failures."""
    record = FailureRecord(
        rank=1,
        at=0.0,
        exception="builtins.RuntimeError",
        message="rain,\n  in the morning",
        step=3,
        parameters=("head.weight", "head.bias"),
        observed={"zero_stage": 3, "gradient_checkpointing": "off"},
        model={"class": "Net", "trainable_parameters": 1234, "frozen_parameters": 5, "peft": True},
    )
    finding = Finding(record, Role.INITIATING, weather(tmp_path))
    spots = [SourceLocation("/u/train.py", 7, "loss += sum(p.sum() for p in m.parameters())")]
    asked = as_asked(REQUEST, world(ZERO2), HARDWARE)
    change = Change(Setting.ZERO_STAGE, 3, "--zero_stage", 2, rule(zero_stage=3))
    attempt = Attempt(1, replace(asked, changes=(change,)), tmp_path)
    whole = failure_rows(finding, attempt, spots, follows=True, whole=True)
    assert [text for label, text in whole if label in ("why", "model")] == [
        "the weather is bad\nIt rains, and everybody gets wet.",
        "Net: 1,234 parameters trained, 5 frozen, wrapped by peft",
    ]
    rows = failure_rows(finding, attempt, spots, follows=True)
    assert page(rows) == (
        "what     RuntimeError: rain, in the morning\n"
        "do       Stay in.\n"
        "where    /u/train.py:7: loss += sum(p.sum() for p in m.parameters())\n"
        "where    parameters head.weight, head.bias\n"
        "why      the weather is bad\n"
        "note     ZeRO stage 2 was requested for attempt 2, yet 3 was in force\n"
        "more     safe-launch explain bad-weather"
    )
    assert failure_rows(finding, attempt, (), follows=False)[1] == ("do", "Stay in.")
    assert "do" not in [label for label, _ in failure_rows(finding, attempt, (), follows=True)]


QUOTED = "Traceback (most recent call last)"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("'x'", "KeyError: 'x'"),
        (
            f"Caught KeyError in DataLoader worker process 0.\nOriginal {QUOTED}:\nKeyError: 'x'\n",
            "KeyError: Caught KeyError in DataLoader worker process 0. KeyError: 'x'",
        ),
        (
            f"ranks:dict_keys([0, 1])\n{QUOTED}: (RANK 0)\nRuntimeError: Missing key\n",
            "KeyError: ranks:dict_keys([0, 1]) RuntimeError: Missing key",
        ),
        (QUOTED, "KeyError"),
    ],
)
def test_a_quoted_traceback_is_told_by_its_error(message: str, told: str) -> None:
    """Its inner lines would fill all the room."""
    record = FailureRecord(0, 0.0, exception="builtins.KeyError", message=message)
    assert raised_rows(record) == [("what", told)]


def test_a_note_that_several_have_found_is_told_once() -> None:
    """Readers, hardware detection and placement may find the same."""
    workload = replace(world(ZERO2), notes=("one", "two", "one"), unmodelled=("two",))
    hardware = replace(HARDWARE, notes=("one",))
    plan = resolve(REQUEST, workload, hardware, [])
    assert isinstance(plan, Plan)
    for rows in (plan_rows(plan), plan_rows(plan, whole=True), launch_rows(plan)):
        assert sorted(text for label, text in rows if label == "note") == ["one", "two"]


def test_an_entry_as_a_page(tmp_path: Path) -> None:
    """The whole file in an order for people."""
    assert entry_text(weather(tmp_path)) == (
        "bad-weather\n"
        "===========\n"
        "the weather is bad\n"
        "\n"
        "role: initiating; class: preset\n"
        "versions: torch >=2.0\n"
        "\n"
        "What happens\n"
        "------------\n"
        "It rains, and\n"
        "everybody gets wet.\n"
        "\n"
        "More of it.\n"
        "\n"
        "What to do\n"
        "----------\n"
        "Stay in.\n"
        "\n"
        "How it is known\n"
        "---------------\n"
        "- seen from the window\n"
        "\n"
        "Sources\n"
        "-------\n"
        "- https://example.org/weather"
    )


@table("entry", CATALOGUE, name=lambda entry: entry.id)
def test_every_entry_has_a_page(entry: KnownFailure) -> None:
    """The page has the title, all sections and all sources."""
    text = entry_text(entry)
    for part in (entry.title, *entry.sections.values(), *entry.sources, *entry.proof):
        assert part in text


def test_suggestions_change_nothing() -> None:
    """The plan as requested, then suggestions in the words of changes."""
    plan = resolve(REQUEST, world(LORA3), HARDWARE, known_rules(OLDER))
    asked = as_asked(REQUEST, world(LORA3), HARDWARE)
    assert isinstance(plan, Plan)
    rows = [*plan_rows(asked), *suggestion_rows(plan)]
    assert [label for label, _ in rows] == ["plan", "open", "preset", "suggest"]
    assert rows[0][1] == "as asked: nothing is changed; on 2 x cpu"
    assert rows[2][1] == "ZeRO stage 3, non-reentrant checkpointing"
    assert rows[3][1].startswith("gradient_checkpointing: non_reentrant -> reentrant (from --")


@pytest.mark.parametrize(
    ("setting", "old", "new", "words"),
    [
        (Setting.ZERO_STAGE, 1, 2, "more communication: "),
        (Setting.ZERO_STAGE, 3, 2, "all parameters instead of 1/4 of them: about 3 GiB"),
        (Setting.ZERO_STAGE, 2, 0, "all gradients and optimizer states instead of 1/4"),
        (Setting.ZERO_STAGE, 1, 0, "1/4 of them: about 9 GiB more a rank in 16 bit"),
        (Setting.GRADIENT_CHECKPOINTING, "reentrant", "non_reentrant", "almost nothing"),
        (Setting.GRADIENT_CHECKPOINTING, "reentrant", "off", "layer's activations stay in memory"),
        (Setting.GRADIENT_CHECKPOINTING, "off", "reentrant", "computed again in the backward"),
        (Setting.STATIC_GRAPH, False, True, "the same parameters must take part in every step"),
        (Setting.FIND_UNUSED_PARAMETERS, False, True, "DDP walks the graph in every step"),
        (Setting.FIND_UNUSED_PARAMETERS, True, False, "outside the loss would now be an error"),
        (Setting.MICRO_BATCH, 4, 2, "the global batch stays"),
    ],
)
def test_what_a_change_costs(setting: Setting, old: Value, new: Value, words: str) -> None:
    """Memory for 2**31 parameters, half of them trained, on four ranks."""
    model = {"trainable_parameters": 2**30, "frozen_parameters": 2**30}
    record = FailureRecord(rank=0, at=0.0, model=model)
    assert words in cost_text(setting, old, new, record, 4)


def test_a_cost_without_a_model_has_no_number() -> None:
    """Unknown costs aren't guessed."""
    assert cost_text(Setting.ZERO_STAGE, 3, 2, FailureRecord(rank=0, at=0.0), 4) == (
        "every rank now holds all parameters instead of 1/4 of them"
    )


def test_the_ends_of_attempts_in_a_line_each(tmp_path: Path) -> None:
    """A success after others, a signal, an early stop, a failure with its entry."""
    attempt = Attempt(0, as_asked(REQUEST, world(ZERO2), HARDWARE), tmp_path)
    record = FailureRecord(rank=1, at=0.0, exit_code=3)
    outcomes = [
        Succeeded(attempt),
        Succeeded(attempt, ("rank 1 died at exit",)),
        Interrupted(attempt, 15),
        Superseded(attempt, Seen({})),
        Failed(attempt, (record,)),
    ]
    known = {0: Finding(record, Role.INITIATING, weather(tmp_path))}
    unknown = {0: Finding(record, Role.INITIATING, None)}
    assert [outcome_text(one, known) for one in outcomes] == [
        "succeeded",
        "succeeded; rank 1 died at exit",
        "stopped by SIGTERM",
        "stopped before a failure: what the workers reported is known to fail",
        "failed: rank 1 left with exit code 3 (bad-weather)",
    ]
    assert outcome_text(outcomes[-1], unknown) == (
        "failed: rank 1 left with exit code 3 (not known)"
    )


def test_deaths_in_words() -> None:
    """An exception, an exit code, a signal."""
    raised = FailureRecord(rank=3, at=0.0, exception="builtins.KeyError", step=1)
    left = FailureRecord(rank=1, at=0.0, exit_code=7)
    killed = FailureRecord(rank=0, at=0.0, signal=11, exit_code=139)
    starved = FailureRecord(rank=0, at=0.0, signal=9, exit_code=137, oom_kills=1)
    odd = FailureRecord(rank=0, at=0.0, signal=40, exit_code=168)
    quit_early = FailureRecord(rank=0, at=0.0, exception="builtins.SystemExit", exit_code=4)
    oom = "the kernel's out-of-memory killer struck on this host meanwhile"
    assert [death_text(one) for one in (raised, left, killed, starved, odd, quit_early)] == [
        "rank 3 raised KeyError after 1 step",
        "rank 1 left with exit code 7",
        "rank 0 was ended by SIGSEGV (invalid memory access in native code)",
        f"rank 0 was ended by SIGKILL ({oom})",
        "rank 0 was ended by signal 40",
        "rank 0 left with exit code 4",
    ]


LOST = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:2017"


def test_independent_causes_are_all_named() -> None:
    """Another rank's independent failure is shown once; consequences aren't."""
    bugs = [FailureRecord(rank, 1.0 + rank, "builtins.KeyError", "'x'") for rank in (2, 3)]
    full = FailureRecord(1, 1.0, "builtins.OSError", "[Errno 28] No space left on device")
    lost = FailureRecord(0, 0.5, "builtins.RuntimeError", LOST)
    diagnosis = diagnose([*bugs, full, lost], read_catalogue())
    assert diagnosis.root.entry is not None
    assert diagnosis.root.entry.id == "disk-full"
    assert [one.record.rank for one in diagnosis.others] == [2]
    assert other_rows(diagnosis) == [("also", "rank 2 raised KeyError")]


def test_an_unexplained_failure_names_who_followed() -> None:
    """The user's innermost line, and later failing ranks with their delay."""
    frames = (Frame("/u/train.py", 9, "main", "step()"), Frame("/lib/torch.py", 1, "f", "g()"))
    first = FailureRecord(
        rank=2,
        at=1.0,
        exception="builtins.KeyError",
        message="'label'",
        frames=frames,
        user_files=("/u/train.py",),
    )
    second = FailureRecord(rank=0, at=1.02, exception="builtins.RuntimeError")
    findings = tuple(Finding(one, Role.INITIATING, None) for one in (first, second))
    assert page(unexplained_rows(Diagnosis(findings), Path("run/rank-2.log"))) == (
        "what     KeyError: 'label'\n"
        "where    /u/train.py:9 in main: step()\n"
        "log      run/rank-2.log"
    )
    then = unexplained_rows(Diagnosis(findings), Path("run/rank-2.log"), whole=True)[2]
    assert then == ("then", "rank 0 (20 ms later) failed too")


def test_a_dead_end_lists_what_contradicts() -> None:
    """The smallest contradictory set of rules is shown."""
    rules = [rule(gradient_checkpointing=mode) for mode in ("off", "reentrant", "non_reentrant")]
    refused = resolve(REQUEST, world({**ZERO2, Fact.BLOCK_RUNS_TWICE: True}), HARDWARE, rules)
    assert isinstance(refused, NoPlan)
    assert page(dead_end_rows(refused)) == (
        "tried    12 presets; none is known to work. Ruled out by:\n"
        "because  gradient_checkpointing=reentrant: a rule of this test\n"
        "because  gradient_checkpointing=non_reentrant: a rule of this test\n"
        "because  gradient_checkpointing=off: a rule of this test\n"
        "on       2 x cpu (--nproc 2; 2 cores, 16.0 GiB of host memory)"
    )
    assert dead_end_line(refused) == (
        "safe-launch: exit code 78 (no settings that are known to work are left): "
        "gradient_checkpointing=reentrant: a rule of this test; "
        "gradient_checkpointing=non_reentrant: a rule of this test; "
        "gradient_checkpointing=off: a rule of this test"
    )


def test_a_dead_end_says_who_forbids_what_would_do() -> None:
    """For people, for a pod's status and as JSON."""
    limits = Limits(never_changed=((Setting.GRADIENT_CHECKPOINTING, "$VARIABLE"),))
    request = replace(REQUEST, limits=limits)
    refused = planned(request, world(ZERO2), HARDWARE, [rule(gradient_checkpointing="reentrant")])
    assert isinstance(refused, NoPlan)
    text = (
        "gradient_checkpointing: reentrant -> non_reentrant would work, but gradient_checkpointing "
        "is never changed ($VARIABLE)"
    )
    assert ("kept", text) in dead_end_rows(refused)
    assert dead_end_line(refused).endswith(text)
    found = document(request, refused.workload, HARDWARE, refused)
    assert found["never_changed"] == {"gradient_checkpointing": "$VARIABLE"}
    assert found["barred"]["gradient_checkpointing"] == "non_reentrant"
    batch = {Setting.MICRO_BATCH: 4, Setting.ACCUMULATION: 1}
    limits = Limits(never_changed=tuple((name, "$VARIABLE") for name in batch))
    request = replace(REQUEST, limits=limits, workers=(2,), whole_world=4)
    lost = planned(request, world({Fact.ENGINE: "ddp", **batch}), HARDWARE, [])
    assert isinstance(lost, NoPlan)
    assert dead_end_rows(lost)[:2] == [
        ("tried", "none: each would change a setting that must not change"),
        ("kept", "accumulation: 1 -> 2 would work, but accumulation is never changed ($VARIABLE)"),
    ]


def test_an_argument_with_a_typing_error_is_all_that_matters() -> None:
    """The nearest option comes first, without notes on other versions."""
    record = FailureRecord(
        *(1, 1.0, "builtins.ValueError", "not used: ['--max_stepps']"),
        mistyped={"--max_stepps": "--max_steps"},
        frames=(Frame("/u/train.py", 4, "main", "parse()"),),
        user_files=("/u/train.py",),
    )
    finding = Finding(record, Role.INITIATING, entry_of("trainer-arguments-unknown"))
    plan = as_asked(REQUEST, world({}), HARDWARE)
    rows = failure_rows(finding, Attempt(0, plan, Path()), (), follows=False)
    assert [label for label, _ in rows] == ["what", "do", "where"]
    assert rows[1] == (
        "do",
        "write `--max_steps` instead of `--max_stepps`, which is unknown",
    )
    unknown = Diagnosis((replace(finding, entry=None),))
    assert rows[1] in unexplained_rows(unknown, Path())


def test_a_batch_that_the_script_makes_itself_is_not_told() -> None:
    """The stated batch may include it."""
    workload = world({Setting.MICRO_BATCH: 4, Setting.ACCUMULATION: 2})
    for makes, told in ((True, False), (False, True)):
        plan = as_asked(REQUEST, replace(workload, makes_batches=makes), HARDWARE)
        assert ("16" in preset_text(plan)) is told
