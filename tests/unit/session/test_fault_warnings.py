"""Failures that no setting avoids get two lines before the launch, which still happens."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from safe_launch.catalogue.reader import concerns
from safe_launch.core.choices import Framework
from safe_launch.core.hardware import Hardware
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin
from safe_launch.planning.plan import Plan
from safe_launch.session.launch_warnings import fault_warnings, print_new
from safe_launch.session.loop import first_plan
from support.attempts import Recorder
from support.tables import table
from support.worlds import CATALOGUE, HARDWARE, REQUEST, known_rules, world

TRAINED = {Fact.ENGINE: "ddp", Setting.ACCUMULATION: 4, Setting.MICRO_BATCH: 1}
ZERO2 = {Fact.ENGINE: "deepspeed", Setting.ZERO_STAGE: 2, Setting.PRECISION: "bf16"}
ZERO3 = {**ZERO2, Setting.ZERO_STAGE: 3}
OVERLAP = {Fact.OVERLAP_COMM: True}
KTO = {**TRAINED, Fact.TRAINER: "KTOTrainer"}
ONCE = {Setting.ACCUMULATION: 1}
GPUS = replace(HARDWARE, accelerator=replace(HARDWARE.accelerator, kind="cuda"))
OWN, TRAINER = Framework.NONE, Framework.TRANSFORMERS


def told(
    values: dict[Name, Value],
    versions: dict[str, str],
    hardware: Hardware = GPUS,
    framework: Framework = TRAINER,
) -> tuple[Plan, list[str]]:
    """The first plan, and the ids of the reported entries."""
    versions = {"torch": "2.9.0", **versions}
    entries = [entry for entry in CATALOGUE if concerns(entry, versions)]
    workload = replace(world(values, framework), versions=MappingProxyType(versions))
    reporter = Recorder()
    plan = first_plan(REQUEST, workload, hardware, known_rules(versions), entries, reporter)
    assert isinstance(plan, Plan)
    lines = [line for text in fault_warnings(plan, entries) for line in text.split("\n")]
    assert [line for text in reporter.lines[1:] for line in text.split("\n")] == lines
    return plan, [line.rpartition("explain ")[2] for line in lines[1::2]]


@table(
    ("entry", "values", "versions", "others", "mended"),
    [
        (
            "trainer-loss-averaged-over-micro-batches",
            TRAINED,
            {"transformers": "4.45.2"},
            ONCE,
            {"transformers": "4.49.0"},
        ),
        (
            "trainer-loss-summed-over-micro-batches",
            TRAINED,
            {"transformers": "4.47.1"},
            ONCE,
            {"transformers": "4.48.3"},
        ),
        (
            "trl-loss-not-divided-by-accumulation",
            KTO,
            {"trl": "0.13.0", "transformers": "4.49.0"},
            ONCE,
            {"trl": "0.14.0"},
        ),
        (
            "trl-orpo-loss-not-divided",
            {**TRAINED, Fact.TRAINER: "ORPOTrainer"},
            {"trl": "0.19.1", "transformers": "4.49.0"},
            {Fact.TRAINER: "CPOTrainer"},
            {"transformers": "4.53.0"},
        ),
        (
            "trl-distillation-loss-not-divided",
            {**TRAINED, Fact.TRAINER: "GKDTrainer"},
            {"trl": "1.6.0", "transformers": "5.2.0"},
            ONCE,
            {"trl": "1.7.0"},
        ),
        (
            "trl-gkd-liger-other-loss",
            {**TRAINED, **ONCE, Fact.TRAINER: "GKDTrainer", Fact.LIGER: True},
            {"trl": "1.3.0"},
            {Fact.LIGER: False},
            {"trl": "1.4.0"},
        ),
        (
            "trl-end-token-left-out",
            {**TRAINED, Fact.TRAINER: "SFTTrainer", Fact.PAD_IS_END: True},
            {"trl": "0.16.0"},
            {Fact.PAD_IS_END: False},
            {"trl": "0.16.1"},
        ),
        (
            "trl-distilled-end-token-left-out",
            {**TRAINED, **ONCE, Fact.TRAINER: "GKDTrainer", Fact.PAD_IS_END: True},
            {"trl": "1.8.0"},
            {Fact.PAD_IS_END: False},
            {"trl": "1.9.0"},
        ),
        (
            "trl-grpo-truncated-answers-counted",
            {**TRAINED, Fact.TRAINER: "GRPOTrainer", Fact.TRUNCATED_MASKED: True},
            {"trl": "1.8.0"},
            {Fact.TRUNCATED_MASKED: False},
            {"trl": "1.9.0"},
        ),
        (
            "trl-grpo-entropy-by-rank",
            {**TRAINED, Fact.TRAINER: "GRPOTrainer", Fact.ENTROPY_SELECTED: True},
            {"trl": "0.22.2"},
            {Fact.ENTROPY_SELECTED: False},
            {"trl": "0.23.0"},
        ),
        (
            "trainer-evaluated-before-training",
            {**TRAINED, Fact.LEFT_UNWRAPPED: True},
            {"accelerate": "1.15.0"},
            {Fact.LEFT_UNWRAPPED: False},
            {"accelerate": "1.13.0"},
        ),
        (
            "trainer-resumes-in-first-epochs-order",
            {**TRAINED, Fact.RESUMES_MIDWAY: True},
            {"accelerate": "1.14.0", "transformers": "4.57.1"},
            {Fact.RESUMES_MIDWAY: False},
            {"transformers": "5.0.0"},
        ),
        (
            "deepspeed-warmup-ends-elsewhere",
            {**ZERO2, Fact.WARMUP_WITHOUT_RATE: True},
            {"deepspeed": "0.17.1"},
            {Fact.WARMUP_WITHOUT_RATE: False},
            {"deepspeed": "0.17.2"},
        ),
        (
            "deepspeed-warmup-one-rate-for-all",
            {**ZERO2, Fact.WARMUP_WITHOUT_RATE: True, Fact.RATES_DIFFER: True},
            {"deepspeed": "0.19.3"},
            {Fact.RATES_DIFFER: False},
            {"deepspeed": "0.19.4"},
        ),
        (
            "deepspeed-one-cycle-without-stairs",
            {**ZERO2, Fact.RATE_IN_STAIRS: True},
            {"deepspeed": "0.19.3"},
            {Fact.RATE_IN_STAIRS: False},
            {"deepspeed": "0.19.4"},
        ),
        (
            "deepspeed-super-offload-loses-updates",
            {**ZERO3, Setting.OFFLOAD: "optimizer", Fact.SUPER_OFFLOAD: True},
            {"deepspeed": "0.18.8"},
            {Fact.SUPER_OFFLOAD: False},
            {"deepspeed": "0.18.9"},
        ),
        (
            "zero-overlap-compiled",
            {**ZERO2, **OVERLAP, Fact.COMPILED: True},
            {"deepspeed": "0.19.2"},
            {Fact.COMPILED: False},
            {"deepspeed": "0.19.3"},
        ),
        (
            "zero-hpz-quantizes-padding",
            {**ZERO3, Fact.SHARDS_QUANTIZED: True},
            {"deepspeed": "0.19.4"},
            {Fact.SHARDS_QUANTIZED: False},
            {"deepspeed": "0.19.5"},
        ),
        (
            "zero-overlap-bucket-overwritten",
            {**ZERO2, **OVERLAP},
            {"deepspeed": "0.17.4"},
            {Fact.OVERLAP_COMM: False},
            {"deepspeed": "0.17.5"},
        ),
        (
            "zero-muon-reduce-scatter",
            {**ZERO2, Fact.OPTIMIZER: "muon", Fact.REDUCE_SCATTER: True},
            {"deepspeed": "0.19.2"},
            {Fact.REDUCE_SCATTER: False},
            {"deepspeed": "0.19.3"},
        ),
        (
            "zero3-padding-added-to-parameters",
            {**ZERO3, Fact.FETCHED_BY_ALL_REDUCE: True},
            {"deepspeed": "0.19.3"},
            {Fact.FETCHED_BY_ALL_REDUCE: False},
            {"deepspeed": "0.19.4"},
        ),
        (
            "peft-tied-embeddings-trained-apart",
            {**TRAINED, Fact.TIED_SAVED: True},
            {"peft": "0.18.1"},
            {Fact.TIED_SAVED: False},
            {"peft": "0.19.0"},
        ),
        (
            "zero3-gradient-read-early",
            ZERO3,
            {"deepspeed": "0.18.7", "torch": "2.10.0"},
            {Setting.ZERO_STAGE: 2},
            {"deepspeed": "0.18.8"},
        ),
    ],
)
def test_only_what_is_affected_is_told(entry, values, versions, others, mended) -> None:
    """Not with a safe setting, nor in the release with the fix; no plan changes."""
    plan, ids = told(values, versions)
    assert ids == [entry]
    assert plan.changes == ()
    assert told({**values, **others}, versions)[1] == []
    assert told(values, {**versions, **mended})[1] == []


def test_the_number_of_nodes_counts() -> None:
    """On one node a universal checkpoint is loaded correctly."""
    versions = {"deepspeed": "0.17.6"}
    plan, ids = told({**ZERO3, Fact.LOADS_UNIVERSAL: True}, versions)
    assert ids == []
    entries = [entry for entry in CATALOGUE if concerns(entry, versions)]
    (text,) = fault_warnings(replace(plan, request=replace(REQUEST, workers=(2, 2))), entries)
    assert text.endswith("explain zero3-universal-on-several-nodes")


def test_a_race_of_devices_isnt_told_on_cpus() -> None:
    """CPUs have no streams."""
    versions = {"deepspeed": "0.17.4"}
    assert told({**ZERO2, **OVERLAP}, versions, HARDWARE)[1] == []


def test_a_loop_of_ones_own_isnt_the_trainers() -> None:
    """A plain loop may sum its loss in any way."""
    assert told(TRAINED, {"transformers": "4.45.2"}, framework=OWN)[1] == []


def test_what_workers_tell_is_told_once() -> None:
    """It is printed at the first worker's report."""
    plan, _ = told(TRAINED, {"peft": "0.18.1"})
    seen = plan.workload.informed([(Fact.TIED_SAVED, Known(True, Origin.OBSERVED, "the model"))])
    entries = [entry for entry in CATALOGUE if entry.id == "peft-tied-embeddings-trained-apart"]
    notices: list[str] = []
    known: set[str] = set()
    for workload in (plan.workload, seen, seen):
        print_new(replace(plan, workload=workload), entries, known, notices.append)
    (notice,) = notices
    assert notice.endswith("explain peft-tied-embeddings-trained-apart")


def test_a_setting_that_only_workers_know_counts() -> None:
    """For example accumulation written in a script's TrainingArguments."""
    versions = {"trl": "0.19.1", "transformers": "4.51.3"}
    plan, ids = told({Fact.TRAINER: "ORPOTrainer"}, versions)
    assert ids == []
    seen = [(Setting.ACCUMULATION, Known(4, Origin.OBSERVED, "the script"))]
    entries = [entry for entry in CATALOGUE if concerns(entry, versions)]
    (text,) = fault_warnings(replace(plan, workload=plan.workload.informed(seen)), entries)
    assert text.endswith("explain trl-orpo-loss-not-divided")


def test_the_release_that_mends_it_is_named() -> None:
    """The line also has the installed release."""
    entries = [entry for entry in CATALOGUE if entry.id == "zero-overlap-bucket-overwritten"]
    plan, _ = told({**ZERO2, **OVERLAP}, {"deepspeed": "0.17.4"})
    (text,) = fault_warnings(plan, entries)
    assert text.split("\n")[1] == (
        "fixed in deepspeed 0.17.5 (installed: 0.17.4): "
        "safe-launch explain zero-overlap-bucket-overwritten"
    )
