"""The sweep and plans: wrong cells are avoided, unmeasured settings aren't changed to."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import pytest
from safe_launch.catalogue.entry import Kind, constraints_of
from safe_launch.catalogue.reader import concerns
from safe_launch.core.choices import Framework
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Workload
from safe_launch.planning import planner
from safe_launch.planning.plan import Plan
from safe_launch.planning.proven import (
    Proof,
    Sweep,
    Verdict,
    proof_of,
    shipped_sweeps,
    wrong_cells,
)
from safe_launch.planning.search import candidates
from safe_launch.report.explain_plan import doubt_text, proof_text
from support.models import HARDWARE as DEVICES
from support.models import QWEN2_7B, model_of, workload_of
from support.worlds import CATALOGUE, ENGINE, HARDWARE, MODE, REQUEST, STAGE, TWICE, rule, world

SILENT = [entry for entry in CATALOGUE if entry.kind is Kind.SILENT]
ASKED: dict[Name, Value] = {
    ENGINE: "deepspeed",
    STAGE: 2,
    MODE: "off",
    Setting.OFFLOAD: "none",
    Setting.PRECISION: "bf16",
    Setting.ACCUMULATION: 4,
    Setting.MICRO_BATCH: 1,
}


def sweep(letters: str, *versions: str, cell: str = "zero2/none/3/bf16/off") -> dict[str, Sweep]:
    """A DeepSpeed sweep with one cell's letters, for blocks that run once and twice."""
    keys = [f"{cell}/unclipped/{model}" for model in ("once", "twice")]
    return {"deepspeed": Sweep(versions, dict(zip(keys, letters.split(), strict=False)))}


def asked(version: str, **other: Value) -> Workload:
    """A request under a version of DeepSpeed."""
    versions = MappingProxyType({"deepspeed": version, "torch": "2.13.0"})
    named: dict[Name, Value] = {}
    for name, value in other.items():
        named[Fact(name) if name in {*Fact} else Setting(name)] = value
    return replace(world({**ASKED, **named}), versions=versions)


def proof(version: str, sweeps: dict[str, Sweep]) -> Proof:
    """The evidence for a request."""
    workload = asked(version)
    found = proof_of(workload.requested, workload, sweeps)
    assert found is not None
    return found


@pytest.mark.parametrize(("letters", "verdict"), [(". =", Verdict.EQUAL), (". x", None)])
def test_a_block_that_runs_once(letters: str, verdict: Verdict | None) -> None:
    """If only the harder model was measured, its success counts, its failure doesn't."""
    workload = asked("0.17.0", **{Fact.BLOCK_RUNS_TWICE: False})
    found = proof_of(workload.requested, workload, sweep(letters, "0.17.0"))
    assert found is not None
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("installed", "verdict", "measured"),
    [
        ("0.17.0", Verdict.EQUAL, ("0.17.0",)),
        ("0.17.4", Verdict.EQUAL, ("0.17.0",)),
        ("0.17.6+cpu", Verdict.WRONG, ("0.17.6",)),
        ("0.17.9", Verdict.WRONG, ("0.17.6",)),
        ("0.18.2", None, ()),
        ("0.20.0", Verdict.EQUAL, ("0.19.0", "0.21.0")),
        ("0.22.0", None, ()),
        ("0.16.0", None, ()),
    ],
)
def test_the_version_that_counts(
    installed: str, verdict: Verdict | None, measured: tuple[str, ...]
) -> None:
    """The nearest lower patch release, else agreeing neighbours, else none."""
    sweeps = sweep("=x== =x==", "0.17.0", "0.17.6", "0.19.0", "0.21.0")
    found = proof(installed, sweeps)
    assert (found.verdict, found.measured) == (verdict, measured)


def test_the_worst_of_what_may_be_counts() -> None:
    """If it is unknown whether a block runs twice, the worse case counts."""
    sweeps, workload = sweep("= x", "0.19.8"), asked("0.19.8")
    assert proof("0.19.8", sweeps).verdict is Verdict.WRONG
    (constraint,) = wrong_cells(workload, sweeps)
    assert constraint.forbids({**workload.facts, **workload.requested})
    known = world({**ASKED, TWICE: False})
    known = replace(known, versions=workload.versions)
    once = proof_of(known.requested, known, sweeps)
    assert once is not None
    assert once.verdict is Verdict.EQUAL
    assert list(wrong_cells(known, sweeps)) == []


def test_no_change_leads_into_a_wrong_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request fails and the nearest stage trains wrongly, so the next is taken."""
    for cell, stage in (("zero2/none/3/bf16/off", 0), ("zero0/none/3/bf16/off", 2)):
        sweeps = sweep("x x", "0.19.8", cell=cell)
        monkeypatch.setattr(planner, "shipped_sweeps", partial(dict, sweeps))
        fails = rule(zero_stage=1)
        plan = planner.planned(REQUEST, asked("0.19.8", zero_stage=1), HARDWARE, [fails])
        assert isinstance(plan, Plan)
        assert plan.preset.zero_stage == stage


def test_what_was_asked_for_is_left_to_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep alone changes no requested setting."""
    sweeps = sweep("x x", "0.19.8")
    monkeypatch.setattr(planner, "shipped_sweeps", partial(dict, sweeps))
    plan = planner.planned(REQUEST, asked("0.19.8"), HARDWARE, [])
    assert isinstance(plan, Plan)
    assert plan.changes == ()


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("0.19.8", ""),
        ("0.19.99", "deepspeed 0.19.99 wasn't measured: judged by 0.19.8"),
        ("0.99.0", "nothing shows yet that deepspeed 0.99.0 trains the same"),
    ],
)
def test_a_correction_that_a_failure_demands_is_made_and_told(version: str, told: str) -> None:
    """In every version; unmeasured versions get a note."""
    fails = rule(zero_stage=2)
    plan = planner.planned(REQUEST, asked(version), HARDWARE, [fails], has_failed=True)
    assert isinstance(plan, Plan)
    assert plan.preset.zero_stage == 1
    assert proof_text(plan).startswith(told)
    assert bool(proof_text(plan)) is bool(told)


def test_nothing_is_said_where_nothing_is_changed() -> None:
    """No version gets a note without a change."""
    plan = planner.planned(REQUEST, asked("0.99.0"), HARDWARE, [])
    assert isinstance(plan, Plan)
    assert (plan.changes, plan.doubt, proof_text(plan)) == ((), None, "")


HEAVY: dict[Name, Value] = {
    STAGE: 0,
    Setting.OFFLOAD: "none",
    Setting.PRECISION: "bf16",
    Setting.MICRO_BATCH: 1,
    Setting.ACCUMULATION: 1,
    MODE: "non_reentrant",
    Fact.OPTIMIZER: "adamw",
    Fact.ADAPTER: "none",
}
"""Requests that don't fit unchanged."""


@pytest.mark.parametrize(
    ("version", "has_failed", "changes"),
    [("0.19.8", False, True), ("0.99.0", False, False), ("0.99.0", True, True)],
)
def test_memory_alone_changes_nothing_in_an_unproven_version(
    version: str, has_failed: bool, changes: bool
) -> None:
    """Before a failure the change is only suggested."""
    workload = workload_of(model_of(QWEN2_7B), HEAVY)
    workload = replace(workload, versions=MappingProxyType({"deepspeed": version}))
    request = LaunchRequest("finetune.py", False, (), 8, "--nproc 8")
    hardware = replace(DEVICES, accelerator=replace(DEVICES.accelerator, memory=60 * 2**30))
    plan = planner.planned(request, workload, hardware, (), has_failed=has_failed)
    assert isinstance(plan, Plan)
    assert bool(plan.changes) is changes
    if not changes:
        assert plan.doubt is not None
        assert plan.doubt.unproven == "deepspeed 0.99.0"
        assert "nothing shows yet that deepspeed 0.99.0 trains the same" in doubt_text(
            plan, plan.doubt
        )


ENGINES: tuple[dict[Name, Value], ...] = (
    {**ASKED, STAGE: 0},
    {**ASKED, STAGE: 3, Setting.OFFLOAD: "optimizer_and_parameters", Setting.ACCUMULATION: 1},
    {**ASKED, STAGE: 2, Setting.PRECISION: "fp16"},
    {**ASKED, STAGE: 1, Setting.PRECISION: "fp32"},
    {
        ENGINE: "ddp",
        MODE: "off",
        Setting.PRECISION: "bf16",
        Setting.MICRO_BATCH: 2,
        Setting.ACCUMULATION: 2,
        Setting.STATIC_GRAPH: False,
        Setting.FIND_UNUSED_PARAMETERS: False,
    },
    {
        ENGINE: "fsdp",
        Fact.FSDP_VERSION: 2,
        MODE: "off",
        Setting.PRECISION: "bf16",
        Setting.MICRO_BATCH: 4,
        Setting.ACCUMULATION: 1,
        Setting.RESHARD_AFTER_FORWARD: True,
    },
)


@pytest.mark.parametrize("values", ENGINES, ids=lambda values: f"{values[ENGINE]}")
@pytest.mark.parametrize("deepspeed", [*shipped_sweeps()["deepspeed"].versions[-1:], "0.99.0"])
@pytest.mark.parametrize("framework", [Framework.TRANSFORMERS, Framework.NONE])
def test_every_cell_that_a_plan_reaches_is_covered(
    values: dict[Name, Value], deepspeed: str, framework: Framework
) -> None:
    """Each candidate has a verdict or an unmeasured version."""
    versions = MappingProxyType({"deepspeed": deepspeed, "torch": "2.13.0"})
    workload = replace(world(values, framework), versions=versions)
    is_measured = deepspeed != "0.99.0" or values[ENGINE] != "deepspeed"
    seen = 0
    for candidate in candidates(workload):
        found = proof_of(candidate, workload, shipped_sweeps())
        assert found is not None, candidate
        assert (found.verdict is not None) is is_measured, candidate
        seen += 1
    assert seen > 0


SHARED = {
    f"torch {version} {engine}/none"
    for version in ("2.3.1", "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0")
    for engine in ("ddp", "ddp_static")
}
"""Autocast loses the gradient of a weight used in a reentrant block and elsewhere: no plan can
detect such a weight (`docs/measured/silent.yaml`)."""


def test_every_wrong_cell_has_an_entry() -> None:
    """In each measured version an entry avoids or reports it."""
    bare = []
    for library, measured in shipped_sweeps().items():
        for key, letters in measured.cells.items():
            for version, letter in zip(measured.versions, letters, strict=True):
                if letter == Verdict.WRONG and not is_covered(library, version, key):
                    bare.append(f"{library} {version} {key}")
    assert {cell.rpartition("none")[0] + "none" for cell in bare} == SHARED
    assert all(re.search(r"/(bf16|fp16)/reentrant/.*/tied$", cell) for cell in bare)


def is_covered(library: str, version: str, key: str) -> bool:
    """Whether a silent entry forbids a wrong cell."""
    engine, offload, accumulation, precision, mode, _, model = key.split("/")
    point: dict[Name, Value] = {
        Setting.OFFLOAD: offload,
        Setting.ACCUMULATION: int(accumulation),
        Setting.PRECISION: precision,
        MODE: mode,
        **({TWICE: True, Fact.REDUCED_EARLY: True} if "twice" in model else {}),
        **({Fact.ADAPTER: "lora"} if "lora" in model else {}),
    }
    if engine.startswith("zero"):
        point |= {ENGINE: "deepspeed", STAGE: int(engine[-1])}
    elif engine == "fsdp2":
        point |= {ENGINE: "fsdp", Fact.FSDP_VERSION: 2}
    else:
        point |= {ENGINE: "ddp", Setting.STATIC_GRAPH: engine == "ddp_static"}
        point[Setting.FIND_UNUSED_PARAMETERS] = engine == "ddp_unused"
    versions = {"torch": "2.13.0", library: version}
    entries = [entry for entry in SILENT if concerns(entry, versions)]
    return any(one.forbids(point) for entry in entries for one in constraints_of(entry))
