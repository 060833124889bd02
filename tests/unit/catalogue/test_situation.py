"""Paragraphs for particular runs are shown for those runs only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import KnownFailure
from safe_launch.catalogue.reader import read_catalogue, read_entry
from safe_launch.catalogue.situation import Trait, prose_for, required, scheduled_by, traits_of
from safe_launch.core.choices import Engine, Framework
from safe_launch.core.settings import Fact
from safe_launch.core.workload import Workload
from safe_launch.evidence.failure_record import FailureRecord, Frame
from safe_launch.system.typed_files import DocumentError
from support.entries import GOOD
from support.tables import table
from support.worlds import world

PROSE = """\
Stay
in.

On the Trainer: take `--umbrella`.

On the Trainer, with LoRA: take a small one.

With Lightning: wait.

It passes.
"""


@pytest.mark.parametrize(
    ("traits", "expected"),
    [
        ((), "Stay in."),
        ((Trait.ACCELERATE, Trait.LORA), "Stay in."),
        ((Trait.TRAINER,), "Stay in. On the Trainer: take `--umbrella`."),
        ((Trait.TRAINER, Trait.LORA), "Stay in. On the Trainer, with LoRA: take a small one."),
        ((Trait.LIGHTNING, Trait.LORA), "Stay in. With Lightning: wait."),
    ],
)
def test_who_is_told_what(traits: tuple[Trait, ...], expected: str) -> None:
    """The first paragraph is followed by the most specific ones that apply."""
    assert prose_for(PROSE, frozenset(traits)) == expected


@pytest.mark.parametrize(
    ("engine", "own", "others"),
    [("fsdp", "its wrapped module", "initialize("), ("deepspeed", "initialize(", "its wrapped")],
)
def test_the_engine_that_a_worker_saw_decides(engine: str, own: str, others: str) -> None:
    """Two engines share the words, and no log line names either."""
    (entry,) = (each for each in read_catalogue() if each.id == "zero3-weight-not-gathered")
    traits = traits_of(FailureRecord(0, 0.0, observed={"engine": engine}), world({}))
    advice = prose_for(entry.sections["What to do"], traits)
    assert own in advice
    assert others not in advice


def test_each_scheduler_has_its_own_advice() -> None:
    """Pods get no sbatch advice, batch jobs no kubectl advice, other runs neither."""
    entries = {entry.id: entry for entry in read_catalogue()}
    words = ("sbatch", "kubectl", "sacct")
    slurm, pod = {"SLURM_JOB_ID": "7"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for environment, expected in ((slurm, {"sbatch", "sacct"}), (pod, {"kubectl"}), ({}, set())):
        advice = prose_for(entries["node-lost"].sections["What to do"], scheduled_by(environment))
        assert {word for word in words if word in advice} == expected
    del entries["slurm-node-failure"]  # Slurm's own
    for entry in entries.values():
        advice = prose_for(entry.sections["What to do"], scheduled_by(pod))
        assert not re.search(r"slurm|sbatch|srun", advice, re.IGNORECASE), entry.id


def test_nothing_is_told_to_whom_nothing_is_meant_for() -> None:
    """A first paragraph may apply to some runs only."""
    assert prose_for("Under FSDP: wait.", frozenset({Trait.TRAINER})) == ""
    assert prose_for("Under FSDP: wait.", frozenset({Trait.FSDP})) == "Under FSDP: wait."


def test_words_before_a_colon_are_a_condition_or_not() -> None:
    """A condition has known traits alone; an unknown one among them is an error."""
    assert required("On the Trainer,\nwith LoRA: this") == {Trait.TRAINER, Trait.LORA}
    assert required("With LoRA it is so: this") == frozenset()
    assert required("With two accelerators: this") == frozenset()
    with pytest.raises(ValueError, match="with lorra"):
        required("On the Trainer, with LoRRA: this")


def test_a_mistaken_trait_is_named_with_its_line(tmp_path: Path) -> None:
    """The message suggests the trait that was meant."""
    path = tmp_path / "sample.md"
    path.write_text(GOOD.replace("Something else.", "On the Trainer, with LoRRA: something."))
    with pytest.raises(DocumentError) as caught:
        read_entry(path)
    assert caught.value.problem.startswith(f"{path}:22: unknown kind of run: `with lorra`")
    assert "`with lora`" in caught.value.hint


def died_in(*files: str, **more: object) -> FailureRecord:
    """A failure whose traceback has these files."""
    frames = tuple(Frame(file, 1, "f", "g()") for file in files)
    return FailureRecord(0, 0.0, "builtins.RuntimeError", frames=frames, **more)  # type: ignore[arg-type]


SITE = "/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("record", "workload", "expected"),
    [
        (died_in(), Workload(), set()),
        (died_in(), Workload(Framework.TRANSFORMERS), {Trait.TRAINER}),
        (died_in(), Workload(Framework.ACCELERATE), {Trait.ACCELERATE}),
        (
            died_in(
                "train.py", f"{SITE}/transformers/trainer.py", f"{SITE}/accelerate/accelerator.py"
            ),
            Workload(),
            {Trait.TRAINER},
        ),
        # A script that only parses its arguments like the Trainer.
        (
            died_in("train.py", f"{SITE}/accelerate/accelerator.py"),
            Workload(Framework.TRANSFORMERS),
            {Trait.ACCELERATE},
        ),
        (died_in("t.py", f"{SITE}/lightning/fabric/fabric.py"), Workload(), {Trait.LIGHTNING}),
        (died_in(f"{SITE}/pytorch_lightning/trainer/trainer.py"), Workload(), {Trait.LIGHTNING}),
        (died_in("my/transformers/trainers.py"), Workload(), set()),
        (died_in(observed={"engine": "deepspeed"}), Workload(), {Trait.DEEPSPEED}),
        (died_in("t.py", f"{SITE}/deepspeed/runtime/engine.py"), Workload(), {Trait.DEEPSPEED}),
        (died_in("t.py", f"{SITE}/torch/distributed/fsdp/_runtime.py"), Workload(), {Trait.FSDP}),
        (died_in(observed={"engine": "ddp"}), world({Fact.ENGINE: "deepspeed"}), {Trait.TRAINER}),
        (died_in(), world({Fact.ENGINE: "fsdp"}), {Trait.TRAINER, Trait.FSDP}),
        (died_in(model={"class": "Net", "peft": True}), Workload(), {Trait.LORA}),
        (died_in(model={"class": "Net"}), world({Fact.ADAPTER: "lora"}), {Trait.TRAINER}),
        (died_in(), world({Fact.ADAPTER: "lora"}), {Trait.TRAINER, Trait.LORA}),
    ],
)
def test_what_was_seen_counts_before_what_was_read(
    record: FailureRecord, workload: Workload, expected: set[Trait]
) -> None:
    """Tracebacks and workers' observations take precedence over the script."""
    assert traits_of(record, workload) == expected


def test_every_engine_that_divides_is_a_trait() -> None:
    """DDP is the exception: the general paragraphs cover it."""
    for engine in Engine:
        traits = traits_of(died_in(observed={"engine": engine.value}), Workload())
        assert bool(traits) == (engine is not Engine.DDP)


FLAGS = (
    r"--(?:per_device|gradient_|bf16|fp16|tf32|ddp_|optim\b|dataloader_|use_liger|save_|max_steps"
    r"|resume_from|output_dir|torch_compile|remove_unused|label_names|eval_|use_cpu|warmup"
    r"|overwrite|max_grad|preprocessing_num|model_name_or_path|deepspeed\b|fsdp)"
)
OTHERS = {
    Trait.TRAINER: rf"TrainingArguments|{FLAGS}",
    Trait.ACCELERATE: r"\baccelerator\.(?!md)\w+\(|Accelerator\(",
    Trait.LIGHTNING: r"strategy=\"ddp",
    Trait.LORA: r"PeftModel|get_peft_model|print_trainable",
    Trait.DEEPSPEED: r"DeepSpeed JSON",
}
"""Words of advice that only such runs can follow."""
OWN = {
    Trait.TRAINER: r"[Tt]rainer|transformers|--[a-z]|max_steps|fp16 and bf16|save_only_model"
    r"|auto_find|Output directory|metric_for_best",
    Trait.ACCELERATE: r"accelerat(?:e\b|e')|Accelerator\(",
    Trait.LIGHTNING: r"[Ll]ightning",
    Trait.LORA: r"peft|[Ll]o[Rr][Aa]|adapter|[Qq]uantized",
    Trait.DEEPSPEED: r"DeepSpeed JSON",
}
"""Words of a title that restrict the failure to such runs."""


@table("entry", read_catalogue(), name=lambda entry: entry.id)
def test_nobody_is_told_to_change_what_he_does_not_have(entry: KnownFailure) -> None:
    """Advice for an unknown run has no framework's flags or calls."""
    advice = prose_for(entry.sections["What to do"], frozenset())
    for trait, words in OTHERS.items():
        if not re.search(OWN[trait], f"{entry.id} {entry.title}"):
            assert re.findall(words, advice) == [], trait


@table("entry", read_catalogue(), name=lambda entry: entry.id)
def test_everybody_is_told_something(entry: KnownFailure) -> None:
    """Trainer users with adapters under DeepSpeed and plain loops both get advice."""
    for traits in ((), (Trait.TRAINER, Trait.LORA, Trait.DEEPSPEED), (Trait.LIGHTNING,)):
        assert prose_for(entry.sections["What to do"], frozenset(traits))
        assert prose_for(entry.sections["What happens"], frozenset(traits))


def test_the_failures_that_many_loops_meet_name_each_ones_own_way() -> None:
    """DDP's unused parameters: each framework's own flag or argument is named."""
    entry = next(entry for entry in read_catalogue() if entry.id == "ddp-unused-parameters")
    for trait, own in {
        Trait.TRAINER: "--ddp_find_unused_parameters true",
        Trait.ACCELERATE: "DistributedDataParallelKwargs",
        Trait.LIGHTNING: 'strategy="ddp_find_unused_parameters_true"',
    }.items():
        for other in (Trait.TRAINER, Trait.ACCELERATE, Trait.LIGHTNING):
            advice = prose_for(entry.sections["What to do"], frozenset({other}))
            assert (own in advice) == (other is trait)
