"""Scripts that build their settings in Python: corrected where the workers ask, in one attempt."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.stacks import CURRENT

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
torch.distributed.destroy_process_group()
"""
# Without its last line gloo may abort a rank at its exit, which torchrun takes for a failure.
PLACE = re.compile(r"settled at TrainingArguments, train\.py:\d+, before any step")
CHANGE = "gradient_checkpointing: reentrant -> non_reentrant (from TrainingArguments, train.py:"


def ran(folder: Path, command: str, *options: str, how: str = "plain") -> tuple[list[float], str]:
    """The losses of the script, and what the launcher said."""
    (folder / "train.py").write_text(SCRIPT)
    done = CURRENT.run(command, *options, "train.py", *how.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("["))
    return json.loads(line), " ".join(done.stderr.replace("[safe-launch]", "").split())


def test_what_no_reader_can_read_is_settled(tmp_path: Path) -> None:
    """In the first attempt, with the losses of whoever had asked for it so; else left alone."""
    right, _ = ran(tmp_path, "torchrun", "--nproc-per-node=2", how="non_reentrant plain")
    ours, told = ran(tmp_path, "safe-launch", "--nproc=2", how="reentrant plain")
    assert ours == pytest.approx(right, rel=1e-6)
    assert PLACE.search(told)
    assert CHANGE in told
    assert "attempt 1: succeeded" in told
    _, told = ran(tmp_path, "safe-launch", "--nproc=2", how="non_reentrant plain")
    assert "settled" not in told


def test_what_one_rank_makes_alone(tmp_path: Path) -> None:
    """Its answer doesn't reach the others: the next attempt has it from its start."""
    right, _ = ran(tmp_path, "torchrun", "--nproc-per-node=2", how="non_reentrant plain")
    ours, told = ran(tmp_path, "safe-launch", "--nproc=2", how="reentrant first-alone")
    assert ours == pytest.approx(right, rel=1e-6)
    assert "doesn't reach every rank" in told
    assert "attempt 2: succeeded" in told
