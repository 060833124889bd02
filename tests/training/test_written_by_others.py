"""Scripts with public repositories' parsers, models and engines, launched unchanged.

The workers' observations are compared with the training itself, as counted at its model, and with
the facts read before the launch.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.stacks import CURRENT, TESTS
from support.trainings import SMALL_HOST

OTHERS = TESTS / "programs" / "others"
PLACES = ("--report_to=none", "--use_cpu=True", "--save_strategy=no", "--disable_tqdm=True")
TRAINER = ("--max_steps=2", "--output_dir=out", "--logging_steps=1", *PLACES)
AUTO = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
CONFIGS: Mapping[str, dict[str, Any]] = {
    f"zero{stage}.json": AUTO
    | {
        "gradient_clipping": 1.0,
        "bf16": {"enabled": "auto"},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": False,
            "reduce_bucket_size": 100_000,
            "stage3_param_persistence_threshold": 0,
        },
    }
    for stage in range(4)
}
FLOATS = {"float32": "fp32", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Case:
    """A script and its behaviour.

    Attributes:
        script: its name.
        arguments: the repository's own, with smaller sizes.
        observed: the workers' expected report.
        texts: rows of the model's first argument for each sample.
        blocks: passes through a block for each pass through the model.
        unseen: facts that no worker can observe before the first step.
        variables: environment set by the repository's own launcher.
    """

    script: str
    arguments: str
    observed: Mapping[str, object]
    texts: int = 1
    blocks: int = 1
    unseen: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)


DDP = {"engine": "ddp"}


def deepspeed(stage: int, **more: object) -> dict[str, object]:
    """The observations of an engine."""
    return {"engine": "deepspeed", "zero_stage": stage, "offload": "none", **more}


CASES = (
    Case(
        "full.py",
        "--model_name_or_path llama --data_path data/dummy_conversation.json --bf16 True "
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --learning_rate 2e-5 "
        "--weight_decay 0. --lr_scheduler_type cosine --model_max_length 64 "
        "--gradient_checkpointing True --lazy_preprocess True",
        {**DDP, "micro_batch": 2, "accumulation": 4, "precision": "bf16", "sequence_length": 64},
    ),
    Case(
        "lora.py",
        "--model_name_or_path llama --lora_r 8 --lora_alpha 16 --lora_dropout 0.05 --data_path "
        "./data/dummy_conversation.json --bf16 True --per_device_train_batch_size 1 "
        "--gradient_accumulation_steps 1 --model_max_length 64 --q_lora False "
        "--deepspeed zero2.json",
        deepspeed(2, micro_batch=1, accumulation=1, precision="bf16", sequence_length=64),
    ),
    Case(
        "optional_lora.py",
        "--model_name_or_path llama-chat --data_path path_to_data --per_device_train_batch_size 2 "
        "--gradient_accumulation_steps 2 --learning_rate 3e-4 --weight_decay 0.1 "
        "--model_max_length 48 --lazy_preprocess True --use_lora --gradient_checkpointing "
        "--deepspeed zero3.json",
        deepspeed(3, micro_batch=2, accumulation=2, precision="fp32", sequence_length=48),
    ),
    Case(
        "projector.py",
        "--deepspeed zero2.json --model_name_or_path llava --data_path pretrain_data.json "
        "--image_folder images --vision_tower openai/clip-vit-large-patch14 "
        "--tune_mm_mlp_adapter True --bf16 False --per_device_train_batch_size 4 "
        "--gradient_accumulation_steps 2 --learning_rate 2e-3 --model_max_length 32 "
        "--gradient_checkpointing True --lazy_preprocess True",
        deepspeed(2, micro_batch=4, accumulation=2, precision="fp32", sequence_length=32),
    ),
    Case(
        "wrapped_llm.py",
        "--model_name_or_path llama --conv_style internvl2_5 --freeze_llm True --use_llm_lora 16 "
        "--grad_checkpoint True --bf16 True --per_device_train_batch_size 4 "
        "--gradient_accumulation_steps 1 --max_seq_length 64 --deepspeed zero1.json",
        deepspeed(1, micro_batch=4, accumulation=1, precision="bf16", sequence_length=64),
    ),
    Case(
        "engine_sft.py",
        "--model_name_or_path llama --per_device_train_batch_size 4 --max_seq_len 64 "
        "--learning_rate 9.65e-6 --weight_decay 0. --num_train_epochs 1 "
        "--gradient_accumulation_steps 2 --gradient_checkpointing --zero_stage 2 --deepspeed "
        "--dtype bf16 --lora_dim 8 --lora_module_name layers. --only_optimize_lora --output_dir o",
        deepspeed(2, micro_batch=4, accumulation=2, precision="bf16", sequence_length=64),
    ),
    Case(
        "engine_rlhf.py",
        "--actor_model_name_or_path llama --critic_model_name_or_path llama "
        "--per_device_training_batch_size 2 --gradient_accumulation_steps 1 "
        "--max_prompt_seq_len 32 --max_answer_seq_len 32 --actor_zero_stage 2 "
        "--critic_zero_stage 2 --dtype bf16 --deepspeed",
        deepspeed(
            2,
            micro_batch=2,
            accumulation=1,
            precision="bf16",
            sequence_length=64,
            reference_model=True,
            trained_beside=1_042_624,  # the critic
            frozen_beside=1_042_624,  # the reward model
        ),
    ),
    Case(
        "no_trainer.py",
        "--dataset_name wikitext --model_name_or_path llama --per_device_train_batch_size 2 "
        "--learning_rate 2e-5 --gradient_accumulation_steps 2 --max_train_steps 2 --block_size 64",
        {**DDP, "accumulation": 2, "precision": "fp32"},
        unseen=frozenset({"micro_batch", "sequence_length"}),
        variables={"ACCELERATE_USE_CPU": "true"},
    ),
    Case(
        "embedder.py",
        "--model_name_or_path bert --train_data retrieval sts.jsonl --train_group_size 4 "
        "--query_max_len 16 --passage_max_len 32 --learning_rate 1e-5 "
        "--per_device_train_batch_size 2 --gradient_checkpointing --deepspeed zero0.json",
        deepspeed(0, micro_batch=2, accumulation=1, precision="fp32"),
        blocks=2,
    ),
    Case(
        "cifar.py",
        "--deepspeed --dtype bf16 --epochs 1 --stage 1",
        deepspeed(1, micro_batch=8, accumulation=1, precision="bf16"),
        unseen=frozenset({"gradient_checkpointing"}),
    ),
    Case(
        "preferences.py",
        "--model_name_or_path llama --beta 0.1 --max_length 48 --per_device_train_batch_size 2 "
        "--gradient_accumulation_steps 2 --learning_rate 5e-7 --gradient_checkpointing True",
        {
            **DDP,
            "micro_batch": 2,
            "accumulation": 2,
            "precision": "fp32",
            "sequence_length": 48,
            "reference_model": True,
        },
        texts=2,
    ),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny models."""
    folder = tmp_path_factory.mktemp("models")
    done = CURRENT.run("python", OTHERS / "prepare.py", folder, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def launch(
    folder: Path, models: Path, case: Case, *options: str
) -> subprocess.CompletedProcess[str]:
    """Launches a script on two ranks; its witness writes `witness.json` in the folder."""
    for name in ("llama", "bert", "llava"):
        (folder / name).symlink_to(models / name)
    (folder / "llama-chat").symlink_to(models / "llama")
    for name, config in CONFIGS.items():
        (folder / name).write_text(json.dumps(config))
    script = OTHERS / case.script
    own = TRAINER if "TrainingArguments" in script.read_text() else ()
    return CURRENT.run(
        *("safe-launch", "--nproc=2", "--log-dir=runs", *options),
        *(script, *case.arguments.split(), *own),
        cwd=folder,
        WITNESS=str(folder / "witness.json"),
        **case.variables,
    )


def documents(folder: Path, name: str) -> list[dict[str, Any]]:
    """A JSON file of each attempt."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"runs/*/*/{name}"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_what_is_observed_is_what_it_did(case: Case, models: Path, tmp_path: Path) -> None:
    """One attempt without changes; report, counts and read facts agree."""
    done = launch(tmp_path, models, case)
    assert done.returncode == 0, done.stderr[-6000:]
    (report,), (plan,) = documents(tmp_path, "observed.json"), documents(tmp_path, "plan.json")
    did = json.loads((tmp_path / "witness.json").read_text())
    seen = report["observed"]
    expected = {**case.observed, **counted(case, did), **dict.fromkeys(case.unseen)}
    assert {name: seen.get(name) for name in expected} == expected
    if report["model"]["config"]:
        assert elements(report["model"]) == (did["trained"], did["frozen"])
    assert plan["changes"] == []
    wrong = {name: known for name, known in read(plan).items() if seen.get(name, known) != known}
    assert wrong == {}


def counted(case: Case, did: Mapping[str, Any]) -> dict[str, object]:
    """The witness's counts as settings and facts."""
    found: dict[str, object] = {"precision": FLOATS[did["computed"]]}
    again = len(did["inside"]) / did["passes"] / case.blocks
    found["gradient_checkpointing"] = {
        (1, True): "off",
        (2, False): "reentrant",
        (2, True): "non_reentrant",
    }[int(again), did["inside"][0]]
    found["micro_batch"] = did["rows"] // case.texts
    found["accumulation"] = did["steps"][0]
    ((optimizer, stepped),) = did["stepped"].items()
    found["optimizer"] = {"AdamW": "adamw", "Adam": "adamw"}[optimizer]
    if case.observed["engine"] == "deepspeed":
        is_shared = stepped < did["trained"]
        assert is_shared == (case.observed["zero_stage"] != 0)
        assert (did["resident"] == 0) == (case.observed["zero_stage"] == 3)
    if did["length"]:
        found["sequence_length"] = did["length"]
    return found


def elements(model: Mapping[str, Any]) -> tuple[int, int]:
    """Trained and frozen elements of the reported model."""
    sizes = {True: 0, False: 0}
    for _, shape, trained, _, count in model["weights"]:
        product = count
        for size in shape:
            product *= size
        sizes[trained] += product
    return sizes[True], sizes[False]


def read(plan: Mapping[str, Any]) -> dict[str, object]:
    """Facts that were more than assumed before the launch."""
    return {
        name: known["value"]
        for name, known in plan["known"].items()
        if known["certainty"] != "assumed"
    }


def enlarged(script: str, *sizes: tuple[str, str]) -> Case:
    """A case with other sizes."""
    case = next(case for case in CASES if case.script == script)
    for old, new in sizes:
        assert old in case.arguments
        case = replace(case, arguments=case.arguments.replace(old, new))
    return case


@pytest.mark.parametrize(
    ("script", "batch", "steps", "length"),
    [
        ("full.py", 2, 4, 64),
        ("lora.py", 1, 1, 64),
        ("optional_lora.py", 2, 2, 48),
        ("wrapped_llm.py", 4, 1, 64),
    ],
)
def test_what_cannot_fit_is_corrected_before_the_first_step(
    script: str, batch: int, steps: int, length: int, models: Path, tmp_path: Path
) -> None:
    """Only the worker knows the loss's computation: then the micro batch shrinks."""
    case = enlarged(
        script,
        (f"train_batch_size {batch}", "train_batch_size 16"),
        (f"accumulation_steps {steps}", "accumulation_steps 1"),
        (f"length {length}", "length 256"),
    )
    (tmp_path / "host.yaml").write_text(SMALL_HOST.format(gib=2.0))
    done = launch(tmp_path, models, case, "--hardware=host.yaml")
    assert done.returncode == 0, done.stderr[-6000:]
    (plan,), (report,) = documents(tmp_path, "plan.json"), documents(tmp_path, "observed.json")
    changed = {change["setting"]: change["new"] for change in plan["changes"]}
    assert changed == {"micro_batch": 2, "accumulation": 8}
    assert report["observed"]["micro_batch"] == 2
    assert report["asked"]["micro_batch"] == 16
    (log,) = (path.read_text() for path in tmp_path.glob("runs/*/*/rank-0.log"))
    assert log.count("'loss'") == 2
    did = json.loads((tmp_path / "witness.json").read_text())
    assert (did["rows"], did["steps"]) == (2, [8, 16])
    assert elements(report["model"]) == (did["trained"], did["frozen"])


def test_what_fits_nowhere_ends_before_the_first_step(models: Path, tmp_path: Path) -> None:
    """At the workers' report; the least memory needed is printed."""
    case = enlarged("full.py", ("length 64", "length 512"))
    (tmp_path / "host.yaml").write_text(SMALL_HOST.format(gib=1.3))
    done = launch(tmp_path, models, case, "--hardware=host.yaml")
    assert done.returncode == 78, done.stderr[-6000:]
    (plan,), (report,) = documents(tmp_path, "plan.json"), documents(tmp_path, "observed.json")
    assert "loss (not stated)" in plan["doubt"]["missing"]
    assert report["asked"]["loss"] == "cross_entropy"
    assert not (tmp_path / "witness.json").exists()
    told = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert "0.62 are usable" in told
