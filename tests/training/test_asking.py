"""Scripts with settings in Python code: corrected at the workers' question, in one attempt."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.lazy import Lazy
from support.stacks import CURRENT
from support.trainings import SMALL_HOST

torch = Lazy("torch")
transformers = Lazy("transformers")

SCRIPT = """
import json, os, sqlite3, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def settings():
    base = sqlite3.connect(":memory:")
    base.execute("create table t (k text, v text)")
    base.executemany("insert into t values (?, ?)", [
        ("gradient_checkpointing", "true"),
        ("gradient_checkpointing_kwargs", json.dumps({"use_reentrant": MODE == "reentrant"})),
        ("ddp_find_unused_parameters", "true"), ("use_cpu", "true"), ("max_steps", "3"),
        ("logging_steps", "1"), ("report_to", '"none"'), ("save_strategy", '"no"'),
        ("output_dir", '"out"'), ("disable_tqdm", "true"),
    ])
    return {k: json.loads(v) for k, v in base.execute("select k, v from t")}


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.arange(i, i + 16) % 100
        return {"input_ids": ids, "labels": ids}


MODE, HOW = sys.argv[1:]
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
))
if HOW == "first-alone" and os.environ["RANK"] == "0":
    TrainingArguments(**settings())
trainer = Trainer(model=model, args=TrainingArguments(**settings()), train_dataset=Data())
trainer.train()
if os.environ["RANK"] == "0":
    print(json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
# Where the interpreter ends, gloo may abort it, which torchrun takes for a failure.
if HOW == "at-once":
    sys.stdout.flush()
    os._exit(0)
"""
PLACE = re.compile(r"settled at TrainingArguments, train\.py:\d+, before any step")
CHANGE = "gradient_checkpointing: reentrant -> non_reentrant (from TrainingArguments, train.py:"


def ran(folder: Path, command: str, *options: str, how: str = "plain") -> tuple[list[float], str]:
    """The script's losses and the launcher's output."""
    (folder / "train.py").write_text(SCRIPT)
    done = CURRENT.run(command, *options, "train.py", *how.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("["))
    return json.loads(line), " ".join(done.stderr.replace("[safe-launch]", "").split())


def test_what_no_reader_can_read_is_settled(tmp_path: Path) -> None:
    """In the first attempt, with the losses of the corrected script; else left alone."""
    right, _ = ran(tmp_path, "torchrun", "--nproc-per-node=2", how="non_reentrant at-once")
    ours, told = ran(tmp_path, "safe-launch", "--nproc=2", how="reentrant plain")
    assert ours == pytest.approx(right, rel=1e-6)
    assert PLACE.search(told)
    assert CHANGE in told
    assert "attempt 1: succeeded" in told
    _, told = ran(tmp_path, "safe-launch", "--nproc=2", how="non_reentrant plain")
    assert "settled" not in told


def test_what_one_rank_makes_alone(tmp_path: Path) -> None:
    """Its answer doesn't reach the others: the next attempt has it from the start."""
    right, _ = ran(tmp_path, "torchrun", "--nproc-per-node=2", how="non_reentrant at-once")
    ours, told = ran(tmp_path, "safe-launch", "--nproc=2", how="reentrant first-alone")
    assert ours == pytest.approx(right, rel=1e-6)
    assert "don't reach every rank" in told
    assert "attempt 2: succeeded" in told


LOADS = """
import json, os, sqlite3, sys
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

STAGE, HOW = int(sys.argv[1]), sys.argv[2]


def settings():
    zero = {"stage": STAGE, "reduce_bucket_size": 100_000, "allgather_bucket_size": 100_000,
            "stage3_prefetch_bucket_size": 100_000, "stage3_max_live_parameters": 100_000,
            "stage3_param_persistence_threshold": 0}
    config = {"zero_optimization": zero, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "train_micro_batch_size_per_gpu": "auto"}
    base = sqlite3.connect(":memory:")
    base.execute("create table t (v text)")
    base.execute("insert into t values (?)", [json.dumps({
        "deepspeed": config, "use_cpu": True, "max_steps": 2, "logging_steps": 1,
        "report_to": "none", "save_strategy": "no", "output_dir": "out", "disable_tqdm": True,
        "per_device_train_batch_size": 1, "optim": "adamw_torch",
    })])
    return json.loads(*base.execute("select v from t").fetchone())


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.arange(i, i + 16) % 100
        return {"input_ids": ids, "labels": ids}


if HOW == "late":
    model = AutoModelForCausalLM.from_pretrained("model")
    arguments = TrainingArguments(**settings())
    other = AutoModelForCausalLM.from_pretrained("model")
else:
    arguments = TrainingArguments(**settings())
    model = AutoModelForCausalLM.from_pretrained("model")
is_partitioned = all(hasattr(weight, "ds_id") for weight in model.parameters())
trainer = Trainer(model=model, args=arguments, train_dataset=Data())
trainer.train()
if os.environ["RANK"] == "0":
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(json.dumps([is_partitioned, losses]))
# Where the interpreter ends, gloo may abort it, which torchrun takes for a failure.
if HOW == "at-once":
    sys.stdout.flush()
    os._exit(0)
"""


def loaded(folder: Path, command: str, *options: str, how: str) -> tuple[bool, list[float], str]:
    """Whether weights were partitioned on loading, the losses, and the launcher's output."""
    (folder / "train.py").write_text(LOADS)
    done = CURRENT.run(command, *options, "train.py", *how.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("["))
    is_partitioned, losses = json.loads(line)
    return is_partitioned, losses, " ".join(done.stderr.replace("[safe-launch]", "").split())


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of 64 million parameters, and two host profiles for it."""
    folder = tmp_path_factory.mktemp("loads")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=24,
        num_attention_heads=8,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    for name, gib in {"small": 2.18, "large": 8}.items():
        (folder / f"{name}.yaml").write_text(SMALL_HOST.format(gib=gib))
    return folder


def test_what_does_not_fit_is_settled_before_weights_are_loaded(model_folder: Path) -> None:
    """Stage 2 becomes stage 3, which partitions on loading; if it fits, it stays."""
    ours = ("safe-launch", "--nproc=2", "--hardware=small.yaml")
    is_partitioned, losses, told = loaded(model_folder, *ours, how="2 plain")
    assert is_partitioned
    assert re.search(r"settled at from_pretrained, train\.py:\d+, before any step", told)
    assert "zero_stage: 2 -> 3 (from from_pretrained, train.py:" in told
    assert "attempt 1: succeeded" in told
    plain = ("torchrun", "--nproc-per-node=2")
    asked, right, _ = loaded(model_folder, *plain, how="3 at-once")
    assert asked
    assert losses == pytest.approx(right, rel=1e-6)
    ours = ("safe-launch", "--nproc=2", "--hardware=large.yaml")
    is_partitioned, _, told = loaded(model_folder, *ours, how="2 plain")
    assert not is_partitioned
    assert "settled" not in told


def test_models_of_which_nothing_is_asked_as_they_are_loaded(model_folder: Path) -> None:
    """A model before the arguments, and a second one; the Trainer settles as before."""
    ours = ("safe-launch", "--nproc=2", "--hardware=small.yaml")
    is_partitioned, _, told = loaded(model_folder, *ours, how="2 late")
    assert not is_partitioned
    assert "settled at Trainer, train.py:" in told
    assert "from_pretrained" not in told
    assert "attempt 1: succeeded" in told
