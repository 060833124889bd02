"""`plan --ask` on real scripts: the answers of one process, and what is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from support.processes import LAUNCHER, environment, gone, launch
from support.stacks import CURRENT
from support.waiting import wait_for

BOUNDED = """
import sys
from safe_launch import cli
from safe_launch.session import asking
asking.BOUND = 5.0
cli.main()
"""
"""The launcher with shorter time limits."""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}
LORA = """
import os, sqlite3
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

base = sqlite3.connect(":memory:")
base.execute("create table settings (name, value)")
known = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 5}
base.executemany("insert into settings values (?, ?)", known.items())
arguments = TrainingArguments("out", bf16=True, **dict(base.execute("select * from settings")))
model = AutoModelForCausalLM.from_pretrained("model")
model.resize_token_embeddings(520)
model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"]))
open("log.txt", "w").write(os.environ["WANDB_MODE"])
data = [{"input_ids": [1] * length} for length in range(1, 65)]
trainer = Trainer(model=model, args=arguments, train_dataset=data)
open("trained", "w").close()
"""
DDP = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.new_group(backend="gloo")
dist.barrier(device_ids=[0])
worlds = [None] * dist.get_world_size()
dist.all_gather_object(worlds, dist.get_world_size())
print(worlds, file=open("worlds", "w"))
model = AutoModelForCausalLM.from_pretrained("model").to("cuda:0")
model.gradient_checkpointing_enable({"use_reentrant": True})
model = DistributedDataParallel(model, find_unused_parameters=True)
open("trained", "w").close()
"""
SHARDED = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

dist.init_process_group()
model = AutoModelForCausalLM.from_pretrained("model")
for layer in (*model.model.layers, model):
    fully_shard(layer)
model(input_ids=torch.ones(2, 8, dtype=torch.long))
open("trained", "w").close()
"""
RAISES = """
from transformers import TrainingArguments

for line in range(100_000):
    print("line", line)
arguments = TrainingArguments("out", per_device_train_batch_size=7)


def load():
    return open("missing.json")


load()
"""
WAITS = """
import subprocess, sys, time

subprocess.Popen(["sleep", "600"], start_new_session=True)
print(sys.stdin.read())
open("ready", "w").close()
time.sleep(600)
"""


def model(workshop: Path) -> None:
    """Creates a model folder without weights."""
    (workshop / "model").mkdir()
    (workshop / "model" / "config.json").write_text(json.dumps(CONFIG))


def known(document: dict[str, object]) -> dict[str, object]:
    """The values of a plan's JSON by name."""
    rows = document["known"]
    assert isinstance(rows, dict)
    return {name: row["value"] for name, row in rows.items()}


def asked(workshop: Path, text: str, *options: str, code: int = 0) -> dict[str, object]:
    """The JSON plan of a script."""
    (workshop / "train.py").write_text(text)
    words = ("plan", "--ask", "--nproc=2", "--json", *options, "train.py")
    done = launch(workshop, *words, ours=False, HF_HUB_OFFLINE="1")
    assert done.returncode == code, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return {**found, "said": done.stderr}


def test_a_trainer_with_adapters(workshop: Path) -> None:
    """Settings are only in code, the model has no weights, and the data has a length."""
    model(workshop)
    found = asked(workshop, LORA)
    told = found["asked"]
    assert isinstance(told, dict)
    assert (told["ending"], told["written"]) == ("whole", ["log.txt"])
    assert told["where"] == "Trainer, train.py:16"
    assert (workshop / "log.txt").read_text() == "disabled"
    assert not (workshop / "trained").exists()
    expected = {"micro_batch": 3, "accumulation": 5, "precision": "bf16", "adapter": "lora"}
    assert {name: known(found)[name] for name in expected} == expected
    assert known(found)["sequence_length"] == 63


def test_a_loop_with_ddp(workshop: Path) -> None:
    """Other ranks aren't waited for, and missing devices are skipped."""
    model(workshop)
    found = asked(workshop, DDP)
    assert isinstance(found["asked"], dict)
    assert found["asked"]["where"] == "DistributedDataParallel, train.py:15"
    assert (workshop / "worlds").read_text() == "[2, 2]\n"
    assert not (workshop / "trained").exists()
    expected = {"find_unused_parameters": True, "gradient_checkpointing": "reentrant"}
    assert {name: known(found)[name] for name in expected} == expected
    assert found["said"] == ""


def test_a_loop_with_fsdp(workshop: Path) -> None:
    """It is asked before its first pass would gather weights."""
    model(workshop)
    found = asked(workshop, SHARDED)
    assert isinstance(found["asked"], dict)
    assert found["asked"]["where"] == "the first step, train.py:10"
    assert not (workshop / "trained").exists()
    expected = {"engine": "fsdp", "fsdp_version": 2, "fsdp_units": "layers"}
    assert {name: known(found)[name] for name in expected} == expected


def test_a_script_that_raises(workshop: Path) -> None:
    """The line that matters comes first; the script's last output is shown."""
    found = asked(workshop, RAISES, code=1)
    said = str(found["said"]).splitlines()
    assert "train.py:10: FileNotFoundError" in said[0]
    assert "line 99999" in said
    assert len(said) < 60
    assert known(found)["micro_batch"] == 7


def test_one_that_comes_to_no_boundary(workshop: Path) -> None:
    """It and its children are ended; stdin is closed; the plan is printed."""
    (workshop / "train.py").write_text(WAITS)
    done = subprocess.run(
        [str(CURRENT.bin / "python"), "-c", BOUNDED, "plan", "--ask", "--json", "train.py"],
        cwd=workshop,
        env=environment(workshop),
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)["asked"]
    assert (told["ending"], told["where"], told["written"]) == ("late", "", ["ready"])
    assert 5 <= told["seconds"] < 60
    assert gone(workshop)


def test_ctrl_c(workshop: Path) -> None:
    """It and its children are ended at once, without a plan."""
    (workshop / "train.py").write_text(WAITS)
    asking = subprocess.Popen(
        [LAUNCHER, "plan", "--ask", "train.py"],
        cwd=workshop,
        env=environment(workshop),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (workshop / "ready").exists())
    asking.send_signal(signal.SIGINT)
    shown, said = asking.communicate()
    assert (asking.returncode, shown) == (130, "")
    assert "SIGINT" in said
    assert gone(workshop)
