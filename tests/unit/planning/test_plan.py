"""`safe-launch plan` for its users: right before a job starts, or on a login node."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from safe_launch.core.constraint import Term
from safe_launch.core.errors import ExitCode
from safe_launch.core.hardware import Hardware
from safe_launch.core.placement import Placement
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin
from safe_launch.machine.named_hardware import hardware_of
from safe_launch.machine.profiles import accelerator_of, profile_named
from safe_launch.planning.budget import capacity
from safe_launch.planning.estimates.estimate import Ranks, ranks_of
from safe_launch.planning.estimates.memory import calibrated_sizes
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.planner import planned
from safe_launch.planning.search import candidates, evaluate, rules_of
from support import worlds
from support.models import HARDWARE, LORA, QWEN2_7B, model_of, workload_of, write_model
from support.stacks import CURRENT
from support.worlds import OLDER, known_rules, rule

QWEN2_72B = {
    **QWEN2_7B,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
SCRIPT = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
ZERO2 = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}
ASKED = (
    "--bf16=True",
    "--model_max_length=4096",
    "--per_device_train_batch_size=4",
    "--gradient_accumulation_steps=4",
)
CERTAIN = ("--use_lora=False", "--optim=adamw_torch", "--gradient_checkpointing=False")
"""Flags for full training with two states for each weight and all activations kept."""
KEPT = {"summary": "the global batch is kept"}
HERE = Hardware(accelerator_of(profile_named("cpu")), 0, 4, 2**36)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `safe-launch` with these arguments in a folder."""
    command = [CURRENT.bin / "safe-launch", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script, a DeepSpeed configuration, and configurations of two models."""
    (tmp_path / "finetune.py").write_text(SCRIPT)
    (tmp_path / "zero2.json").write_text(json.dumps(ZERO2))
    for name, config in (("7b", QWEN2_7B), ("72b", QWEN2_72B)):
        write_model(tmp_path / name, config)
    return tmp_path


def document(
    folder: Path, hardware: str, model: str, *more: str, arguments: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of `plan --json` for full fine-tuning on eight devices."""
    own = ("finetune.py", f"--model_name_or_path={model}", "--deepspeed=zero2.json", *ASKED)
    options = ("--json", "--nproc=8", f"--hardware={hardware}", *more)
    done = run(folder, "plan", *options, *own, *arguments)
    return done.returncode, json.loads(done.stdout)


def test_one_job_on_two_kinds_of_devices(folder: Path) -> None:
    """Full fine-tuning of 7.6 B parameters on 80 GB and 32 GB: two plans, one global batch."""
    plans = {}
    for hardware in ("dgx-a100-80gb", "atlas-800t-a2-910b4"):
        code, plan = document(folder, hardware, "7b", arguments=CERTAIN)
        assert code == 0
        assert plan["model"]["source"] == "7b: config.json and 1 safetensors header"
        preset = plan["preset"]
        assert preset["micro_batch"] * preset["accumulation"] == 16
        assert plan["estimate"]["bound"] <= plan["usable_bytes"]
        causes = {change["setting"]: change["cause"] for change in plan["changes"]}
        assert causes.pop("accumulation", KEPT)["summary"] == KEPT["summary"]
        assert all(cause["kind"] == "memory" for cause in causes.values())
        plans[hardware] = preset
    large, small = plans.values()
    assert large["zero_stage"] == 2
    assert large["micro_batch"] == 1  # the first setting to change
    assert large["gradient_checkpointing"] == "off"
    assert small["micro_batch"] < 4
    # The states alone are 30 GiB at stage 2, of 29.5: the optimizer or the weights must move.
    assert small["zero_stage"] == 3 or small["offload"] == "optimizer"


def test_what_cannot_be_done_says_what_could(folder: Path) -> None:
    """72 B in full on eight devices of 32 GB: a separate exit code, and remedies with numbers."""
    done = run(
        folder,
        *("plan", "--nproc=8", "--hardware=atlas-800t-a2-910b4", "finetune.py"),
        *("--model_name_or_path=72b", "--deepspeed=zero2.json", *ASKED, *CERTAIN),
    )
    assert done.returncode == ExitCode.NO_PLAN
    assert "none is known to work" in done.stdout
    assert "x ascend-910b4:" in done.stdout
    assert "LoRA on all linear layers:" in done.stdout
    code, plan = document(folder, "atlas-800t-a2-910b4", "72b", arguments=CERTAIN)
    assert code == ExitCode.NO_PLAN
    assert not plan["feasible"]
    assert len(plan["remedies"]) >= 2


def test_nothing_is_refused_on_what_nobody_has_stated(folder: Path) -> None:
    """With adapters and optimizer unstated it launches as requested, with a note."""
    code, plan = document(folder, "atlas-800t-a2-910b4", "72b")
    assert code == 0
    assert plan["changes"] == []
    assert plan["doubt"]["withheld"] == []
    assert plan["doubt"]["missing"][:2] == [
        "adapter (not stated)",
        "quantization_bits (not stated)",
    ]
    own = ("finetune.py", "--model_name_or_path=72b", "--deepspeed=zero2.json", *ASKED)
    told = run(folder, "plan", "--nproc=8", "--hardware=atlas-800t-a2-910b4", *own).stdout
    assert "doubt    it may not fit into 29.5 GiB. Launched as asked, because" in told


def test_nothing_is_changed_on_what_is_only_assumed(folder: Path) -> None:
    """A change based on an estimate is only suggested, with the missing fact."""
    code, plan = document(folder, "dgx-a100-80gb", "7b")
    assert code == 0
    assert plan["changes"] == []
    assert plan["preset"]["micro_batch"] == 4
    (withheld,) = plan["doubt"]["withheld"]
    assert (withheld["setting"], withheld["old"]) == ("micro_batch", 4)
    assert plan["doubt"]["missing"] == [
        "gradient_checkpointing (transformers' default of gradient_checkpointing)"
    ]
    assert plan["known"]["gradient_checkpointing"]["certainty"] == "assumed"
    assert plan["known"]["zero_stage"]["certainty"] == "stated"


def test_an_argument_that_was_not_understood_makes_the_memory_uncertain(folder: Path) -> None:
    """The plan would be refused, but the argument's effect is unknown."""
    code, plan = document(folder, "atlas-800t-a2-910b4", "72b", arguments=CERTAIN)
    assert code == ExitCode.NO_PLAN
    more = (*CERTAIN, "--freeze_first_layers=70")
    code, plan = document(folder, "atlas-800t-a2-910b4", "72b", arguments=more)
    assert code == 0
    assert plan["not_understood"] == ["--freeze_first_layers"]
    assert plan["changes"] == []
    assert plan["doubt"]["missing"] == ["--freeze_first_layers (not understood)"]
    own = ("finetune.py", "--model_name_or_path=72b", "--deepspeed=zero2.json", *ASKED, *more)
    told = run(folder, "plan", "--nproc=8", "--hardware=atlas-800t-a2-910b4", *own).stdout
    assert "--freeze_first_layers (not understood)" in " ".join(told.split())


@pytest.mark.parametrize(
    ("source", "flags", "hint"),
    [
        ("from peft import LoraConfig, get_peft_model\n", (), "the script names LoraConfig"),
        ("from mine.lora import convert\n", ("--lora_dim=128",), "--lora_dim"),
        ("import mine\n", ("--peft_scheme=houlsby",), "--peft_scheme"),
    ],
)
def test_nothing_is_changed_where_adapters_are_hinted_at(
    source: str, flags: tuple[str, ...], hint: str, folder: Path
) -> None:
    """Changes for full fine-tuning aren't made: adapters may be trained."""
    flags = ("--per_device_train_batch_size=2", "--gradient_checkpointing=True", *flags)
    code, plan = document(folder, "atlas-800t-a2-910b4", "7b", arguments=flags)
    assert code == 0
    assert plan["changes"] == []
    (folder / "finetune.py").write_text(SCRIPT + source)
    code, plan = document(folder, "atlas-800t-a2-910b4", "7b", arguments=flags)
    assert code == 0
    assert plan["changes"] == []
    assert f"adapter ({hint})" in plan["doubt"]["missing"]


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({"version": 2}, {"gradient_checkpointing", "micro_batch", "accumulation"}),
        (
            {"version": 2, "reshard_after_forward": False},
            {"gradient_checkpointing", "reshard_after_forward", "micro_batch", "accumulation"},
        ),
        ({}, set()),
    ],
    ids=["freed", "kept", "version not stated"],
)
def test_fsdp2_is_planned_smaller_for_a_small_device(
    config: dict[str, Value], changed: set[str], folder: Path
) -> None:
    """The engine stays; an assumed FSDP version changes no settings."""
    flags = ("--fsdp=full_shard", f"--fsdp_config={json.dumps(config)}")
    own = ("finetune.py", "--model_name_or_path=7b", *ASKED, *CERTAIN, *flags)
    done = run(folder, "plan", "--json", "--nproc=8", "--hardware=ascend-910b4", *own)
    plan = json.loads(done.stdout)
    assert {change["setting"] for change in plan["changes"]} == changed
    assert plan["known"]["engine"]["value"] == "fsdp"
    assert (plan["doubt"] is not None) == (not changed)


def test_checkpointing_that_a_script_with_trl_is_given_counts(folder: Path) -> None:
    """`--gradient_checkpointing True` is on, though trl chooses the implementation."""
    zero3 = {**ZERO2, "zero_optimization": {"stage": 3}}
    (folder / "zero2.json").write_text(json.dumps(zero3))
    (folder / "finetune.py").write_text(SCRIPT + "from trl import SFTTrainer\n")
    given = (*CERTAIN, "--gradient_checkpointing", "True")
    code, plan = document(folder, "dgx-a100-80gb", "7b", arguments=given)
    assert code == 0
    assert plan["known"]["checkpointed"]["source"] == "--gradient_checkpointing"
    assert plan["changes"] == []
    assert plan["estimate"]["components"]["activations"] < 8 * 2**30


@pytest.mark.parametrize(
    "flags",
    [
        ("--fsdp=full_shard", '--fsdp_config={"version": 1}'),
        ("--tensor_parallel_size=8",),
        ("--sequence_parallel_size=4",),
    ],
)
def test_what_is_not_modelled_is_not_judged(flags: tuple[str, ...], folder: Path) -> None:
    """The estimate of plain data parallelism isn't used instead."""
    own = ("finetune.py", "--model_name_or_path=72b", *ASKED, *CERTAIN, *flags)
    done = run(folder, "plan", "--json", "--nproc=8", "--hardware=ascend-910b4", *own)
    plan = json.loads(done.stdout)
    assert done.returncode == 0
    assert plan["changes"] == []
    assert plan["estimate"] is None


def test_the_plan_is_told(folder: Path) -> None:
    """The decision first, then each change with its cause; all facts on request."""
    hardware = ("--nproc=8", "--hardware=ascend-910b4")
    own = ("finetune.py", "--model_name_or_path=7b", "--deepspeed=zero2.json", *ASKED)
    own += CERTAIN
    done = run(folder, "plan", *hardware, *own)
    assert done.returncode == 0
    assert done.stdout.startswith("plan     ")
    assert " changes; on 8 x ascend-910b4\n" in done.stdout.splitlines(keepends=True)[0]
    assert "(from --gradient_accumulation_steps): the global batch" in done.stdout
    assert "memory   fits: " in done.stdout
    assert "known    " not in done.stdout
    assert "doesn't fit" not in done.stdout
    assert "keep     --fix suggest" in done.stdout
    whole = run(folder, "plan", "-v", *hardware, *own)
    assert whole.stdout.splitlines()[0] == done.stdout.splitlines()[0]
    for text in (
        "model    Qwen2ForCausalLM: 7.62 B parameters, 7.62 B trained (7b: config.json and 1",
        "known    sequence_length = 4096 (--model_max_length)",
        "known    zero_stage = 2 (zero2.json: zero_optimization.stage)",
        "doesn't fit",
        "  chosen",
        "8 x ascend-910b4, 29.5 GiB each (--hardware ascend-910b4",
        "GiB a rank expected",
        "micro_batch: 4 -> ",
        "propose  a chunked loss",
    ):
        assert text in whole.stdout, text
    rows = [line for line in whole.stdout.splitlines() if line.endswith(("fit", "possible"))]
    assert len(rows) == len(set(rows)) > 4


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--strict",), "--strict allows no change"),
        (("--hardware=gaudi2",), "no such profile"),
        (("--preset=zero9",), "there is no preset `zero9`"),
        (("--set=micro_batch=0",), "--set micro_batch: micro_batch can't be 0"),
        (("--set=micro_batc=1",), "no setting `micro_batc`"),
        (("--set=offload=disk",), "offload is one of none, optimizer"),
    ],
)
def test_refusals(more: tuple[str, ...], problem: str, folder: Path) -> None:
    """Each has a message and an exit code, not a traceback."""
    own = ("finetune.py", "--model_name_or_path=7b", "--deepspeed=zero2.json", *ASKED)
    hardware = () if more[0].startswith("--hardware") else ("--hardware=ascend-910b4",)
    done = run(folder, "plan", "--nproc=8", *hardware, *more, *own, *CERTAIN)
    assert done.returncode == (ExitCode.NO_PLAN if more == ("--strict",) else ExitCode.USAGE)
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("config.json", "{", "7b/config.json"),
        ("config.json", json.dumps({**QWEN2_7B, "hidden_size": -4}), "hidden_size"),
        ("model.safetensors", "\x10\0\0\0\0\0\0\0{", "model.safetensors"),
    ],
)
def test_broken_files_of_a_model(name: str, text: str, problem: str, folder: Path) -> None:
    """The error has file and field."""
    (folder / "7b" / name).write_text(text)
    done = run(
        folder, "plan", "--hardware=l40s", "--nproc=8", "finetune.py", "--model_name_or_path=7b"
    )
    assert done.returncode == ExitCode.USAGE
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"train_micro_batch_size_per_gpu": 2},
            "train_micro_batch_size_per_gpu is 2, but --per_device_train_batch_size is 4",
        ),
        (
            {
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 4,
                "train_batch_size": 100,
            },
            "micro batch x accumulation is 4 x 4 x 8 workers = 128",
        ),
    ],
)
def test_arguments_that_contradict_each_other(
    config: dict[str, Any], problem: str, folder: Path
) -> None:
    """Arguments that the framework would reject are refused early, with both places."""
    (folder / "zero2.json").write_text(json.dumps({**ZERO2, **config}))
    own = ("finetune.py", "--model_name_or_path=7b", "--deepspeed=zero2.json", *ASKED)
    done = run(folder, "plan", "--nproc=8", "--hardware=l40s", *own)
    assert done.returncode == ExitCode.USAGE
    assert problem in " ".join(done.stderr.split())
    assert "zero2.json: " in done.stderr


def test_a_launch_on_another_machine_is_refused(folder: Path) -> None:
    """A profile that contradicts this host is refused before workers start."""
    done = run(folder, "--nproc=8", "--hardware=ascend-910b4", "finetune.py")
    assert done.returncode == ExitCode.USAGE
    assert "it is a npu (ascend-910b4), this host has " in done.stderr


def test_an_unknown_architecture_is_planned_without_memory(folder: Path) -> None:
    """The file and field are named; the rest of the plan is valid."""
    (folder / "7b" / "model.safetensors").unlink()
    (folder / "7b" / "config.json").write_text('{"model_type": "tomorrows", "hidden_size": 64}')
    done = run(
        folder, "plan", "--hardware=l40s", "--nproc=8", "finetune.py", "--model_name_or_path=7b"
    )
    assert done.returncode == 0
    assert "config.json" in done.stdout
    assert "tomorrows" in done.stdout
    assert "memory isn't estimated" in done.stdout


def test_no_torch_is_imported(folder: Path) -> None:
    """A plan needs neither framework nor accelerator."""
    program = (
        "import sys\n"
        "from safe_launch.cli import guarded\n"
        "code = guarded(sys.argv[1:])\n"
        "heavy = {'torch', 'transformers', 'deepspeed'}\n"
        "sys.exit(code or (9 if heavy & sys.modules.keys() else 0))\n"
    )
    own = ("finetune.py", "--model_name_or_path=7b", "--deepspeed=zero2.json", *ASKED)
    arguments = ("plan", "--hardware=a100-80gb", "--nproc=8", *own)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_lora_with_stage_3_is_planned_around() -> None:
    """MiniCPM-V's LoRA with stage 3 and non-reentrant checkpointing on DeepSpeed 0.16."""
    workload = workload_of(
        model_of(QWEN2_7B),
        {
            **LORA,
            Fact.FROZEN_PARAMETERS: True,
            Setting.ZERO_STAGE: 3,
            Setting.OFFLOAD: "none",
            Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
            Setting.MICRO_BATCH: 1,
            Setting.ACCUMULATION: 8,
            Setting.PRECISION: "bf16",
        },
    )
    request = LaunchRequest("finetune.py", False, (), 8, "--nproc 8")
    hardware = hardware_of("a100-80gb", HERE)
    plan = planned(request, workload, hardware, known_rules(OLDER))
    assert isinstance(plan, Plan)
    (change,) = plan.changes
    assert (change.setting, change.new) == (Setting.GRADIENT_CHECKPOINTING, "reentrant")
    assert change.constraint.cause.name == "zero3-recompute-of-released-parameters"


def test_a_fall_back_to_stage_2_needs_the_memorys_proof() -> None:
    """If stage 3 is forbidden: stage 2 if that fits, else offload, else a dead end."""
    base = {
        Setting.ZERO_STAGE: 3,
        Setting.OFFLOAD: "none",
        Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
        Setting.MICRO_BATCH: 1,
        Setting.ACCUMULATION: 8,
        Setting.PRECISION: "fp16",
        Fact.PARAMETER_OUTSIDE_FORWARD: True,
        Fact.ADAPTER: "none",
        Fact.OPTIMIZER: "adamw",
    }
    request = LaunchRequest("finetune.py", False, (), 8, "--nproc 8")
    stages = {}
    sizes = {"7b": QWEN2_7B, "72b": QWEN2_72B}
    for name, size in (("a100-80gb", "7b"), ("ascend-910b4", "7b"), ("ascend-910b4", "72b")):
        workload = workload_of(model_of(sizes[size]), base)
        found = planned(request, workload, hardware_of(name, HERE), known_rules(worlds.CURRENT))
        if isinstance(found, Plan):
            settings = found.preset.settings()
            stages[name, size] = (settings[Setting.ZERO_STAGE], settings[Setting.OFFLOAD])
        else:
            assert isinstance(found, NoPlan)
            stages[name, size] = None
    assert stages["a100-80gb", "7b"] == (2, "none")
    assert stages["ascend-910b4", "7b"] == (2, "optimizer")
    assert stages["ascend-910b4", "72b"] is None


def test_what_is_proposed_after_a_failure() -> None:
    """An assumption of a known failure then counts, also for fitting plans."""
    asked: dict[Name, Value] = {
        Setting.ZERO_STAGE: 3,
        Setting.OFFLOAD: "none",
        Setting.GRADIENT_CHECKPOINTING: "reentrant",
        Setting.MICRO_BATCH: 8,
        Setting.ACCUMULATION: 1,
        Setting.PRECISION: "bf16",
        Fact.ADAPTER: "none",
        Fact.OPTIMIZER: "adamw",
        Fact.LOSS: "cross_entropy",
        Fact.SEQUENCE_LENGTH: 4096,
    }
    workload = workload_of(model_of(QWEN2_7B), asked)
    assumed = Known(value=True, origin=Origin.DEFAULT, source="transformers")
    known = {**workload.known, Fact.BLOCK_RUNS_TWICE: assumed}
    workload = replace(workload, known=MappingProxyType(known))
    twice = Term(Fact.BLOCK_RUNS_TWICE, frozenset({True}))
    reentrant = rule(gradient_checkpointing="reentrant")
    rules = [replace(reentrant, terms=(*reentrant.terms, twice))]
    request = LaunchRequest("finetune.py", False, (), 8, "--nproc 8")
    hardware = hardware_of("l40s", HERE)
    before, after = (
        planned(request, workload, hardware, rules, has_failed=has_failed)
        for has_failed in (False, True)
    )
    assert isinstance(before, Plan)
    assert isinstance(after, Plan)
    (fits,), (falls_short,) = before.proposals, after.proposals
    assert fits.endswith(" would fit")
    assert falls_short.endswith(", which alone isn't enough")


def test_the_lattice_is_small() -> None:
    """A large batch has hundreds of candidates, not millions."""
    asked = {
        Setting.ZERO_STAGE: 2,
        Setting.OFFLOAD: "none",
        Setting.GRADIENT_CHECKPOINTING: "off",
        Setting.MICRO_BATCH: 64,
        Setting.ACCUMULATION: 64,
    }
    workload = workload_of(model_of(QWEN2_7B), asked)
    every = list(candidates(workload))
    assert len(every) < 300
    products = {one[Setting.MICRO_BATCH] * one[Setting.ACCUMULATION] for one in every}
    assert products == {4096}
    assert calibrated_sizes(workload, hardware_of("l40s", HERE), Ranks(8, 8)) is not None


def test_a_plan_over_two_nodes() -> None:
    """ZeRO divides by all ranks, the slower link counts, and host memory is per node."""
    hardware = hardware_of("a100-80gb", HERE)
    asked = {Setting.ZERO_STAGE: 2, Setting.OFFLOAD: "optimizer", Setting.MICRO_BATCH: 1}
    workload = workload_of(model_of(QWEN2_7B), {**asked, Setting.ACCUMULATION: 4})
    one = LaunchRequest("finetune.py", False, (), 8, "--nproc 8")
    two = replace(one, placement=Placement(nodes=2, least=2))
    wide = replace(one, nproc=16)
    found = {
        name: evaluate(
            workload.requested,
            workload,
            rules_of(request, replace(hardware, accelerators=count), ()),
            calibrated_sizes(workload, hardware, Ranks(8, 8)),
        )
        for name, request, count in (("one", one, 8), ("two", two, 8), ("wide", wide, 16))
    }
    need = {name: known.estimate for name, known in found.items() if known.estimate}
    time = {name: known.seconds for name, known in found.items() if known.seconds}
    assert need["two"].expected == need["wide"].expected
    assert need["two"].expected <= need["one"].expected
    assert need["two"].host == need["one"].host // 2
    assert need["wide"].host == pytest.approx(2 * need["two"].host, abs=16)
    assert hardware.accelerator.node_link < hardware.accelerator.link
    assert time["two"] > time["wide"]


def test_what_a_host_shares_is_shared_by_its_own_workers() -> None:
    """On CPUs a host's workers, including other tasks', share its memory."""
    cpu = replace(HERE, accelerators=0)
    request = LaunchRequest("finetune.py", False, (), 2, "--nproc 2")
    two = replace(request, placement=Placement(nodes=2, least=2))
    tasks = replace(request, nproc=1, placement=Placement(nodes=4, least=4, local=1, beside=2))
    lost = replace(two, workers=(2, 1))
    assert ranks_of(request, cpu) == Ranks(2, 2)
    assert ranks_of(two, cpu) == ranks_of(tasks, cpu) == Ranks(4, 2)
    assert ranks_of(lost, cpu) == Ranks(3, 2)
    device = replace(HERE.accelerator, memory=80 << 30)
    eight = replace(HERE, accelerators=8, accelerator=device)
    assert ranks_of(replace(request, nproc=16), eight) == Ranks(16, 8)
    assert ranks_of(request, replace(cpu, accelerators=1)) == Ranks(2, 2), "a profile of a CPU"
    bound = replace(eight, accelerators=1)
    assert ranks_of(tasks, bound) == Ranks(4, 2), "each task sees a device of its own"
    assert capacity(cpu, ranks_of(two, cpu)) == capacity(cpu, ranks_of(request, cpu))


def test_the_plan_says_which_nodes(folder: Path) -> None:
    """The global batch covers all nodes; sources are named."""
    nodes = ("--nproc=2", "--nnodes=2", "--node_rank=1", "--master_addr=n1", "--hardware=cpu")
    done = run(folder, "plan", *nodes, "finetune.py", "--model_name_or_path=7b", *ASKED)
    text = " ".join((done.stdout + done.stderr).replace("[safe-launch]", "").split())
    assert "2 nodes x 2 x cpu" in text
    assert "nodes 2, this is node 1 (--nnodes, --node-rank)" in text
    assert "node 0 n1:29500 (--master-addr, the default port)" in text
    _, plan = document(folder, "dgx-a100-80gb", "7b", "--nnodes=2")
    assert (plan["workers"], plan["nodes"], plan["world"]) == (8, [8, 8], 16)
    assert plan["placement"] == {"nodes": "2, numbered as they join (--nnodes)"}


def test_a_batch_that_is_meant_for_all_nodes(folder: Path) -> None:
    """DeepSpeed's train_batch_size counts all nodes' ranks."""
    batch = {"train_micro_batch_size_per_gpu": 4, "train_batch_size": 128}
    (folder / "zero2.json").write_text(json.dumps({**ZERO2, **batch}))
    flags = ("finetune.py", "--model_name_or_path=7b", "--deepspeed=zero2.json", "--bf16=True")
    options = ("--json", "--nproc=8", "--hardware=dgx-a100-80gb", "--nnodes=2")
    plan = json.loads(run(folder, "plan", *options, *flags).stdout)
    assert plan["known"]["accumulation"]["value"] == 128 // 4 // 16


def test_on_the_cpu_imports_come_on_top(folder: Path) -> None:
    """A process also holds the script's imports, whose size is unknown before the launch."""
    own = ("finetune.py", "--model_name_or_path=7b", *ASKED)
    told = {
        name: " ".join(run(folder, "plan", f"--hardware={name}", "--nproc=2", *own).stdout.split())
        for name in ("cpu", "a100-80gb")
    }
    assert "at most, besides the script's imports; " in told["cpu"]
    assert "at most; " in told["a100-80gb"]


HEAVY: dict[Name, Value] = {
    Setting.ZERO_STAGE: 2,
    Setting.OFFLOAD: "none",
    Setting.MICRO_BATCH: 4,
    Setting.ACCUMULATION: 1,
    Setting.PRECISION: "bf16",
    Setting.GRADIENT_CHECKPOINTING: "off",
    Fact.OPTIMIZER: "adamw",
}


@pytest.mark.parametrize("gib", [24, 40, 60])
@pytest.mark.parametrize(
    "name", [Setting.GRADIENT_CHECKPOINTING, Setting.ZERO_STAGE, Setting.OFFLOAD]
)
def test_what_is_fixed_and_only_assumed(name: Setting, gib: int) -> None:
    """The plan keeps its value; a smaller one stays among the candidates."""
    workload = workload_of(model_of(QWEN2_7B), HEAVY)
    assumed = {**workload.known, name: Known(HEAVY[name], Origin.DEFAULT, "a default")}
    accelerator = replace(HARDWARE.accelerator, memory=gib * 2**30)
    found = planned(
        LaunchRequest("finetune.py", False, (), 8, "--nproc 8"),
        replace(workload, known=assumed),
        replace(HARDWARE, accelerator=accelerator),
        (),
        fixed={name: HEAVY[name]},
    )
    assert isinstance(found, Plan)
    assert found.preset.settings()[name] == HEAVY[name]
    if name is Setting.GRADIENT_CHECKPOINTING:
        assert found.doubt is not None
        assert "gradient_checkpointing (a default)" in found.doubt.missing


def test_what_was_set_before_stays_where_nothing_forbids_what_was_asked_for() -> None:
    """For example after another model ran out of memory."""
    workload = workload_of(model_of(QWEN2_7B), {**HEAVY, Fact.ADAPTER: "none"})
    request = LaunchRequest("finetune.py", False, (), 8, "--nproc 8")
    accelerator = replace(HARDWARE.accelerator, memory=500 * 2**30)
    hardware = replace(HARDWARE, accelerator=accelerator)
    found = planned(request, workload, hardware, (), fixed={Setting.ZERO_STAGE: 3})
    assert isinstance(found, Plan)
    (change,) = found.changes
    assert (change.setting, change.old, change.new) == (Setting.ZERO_STAGE, 2, 3)
