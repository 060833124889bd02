"""The cost of a plan: CPU time against `python -c pass`, and time to the first line.

    python benchmarks/launch/planning.py [--rounds N]

Two jobs on a profiled node of eight A100: a script on Hugging Face's Trainer with a DeepSpeed file,
and a script of several files with its own parser. The commands take turns, so that noise affects
all equally. CPU time is user and system time, children included. Prints medians, and the ratio of
the medians of CPU time.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
SCRIPT = """\
from dataclasses import dataclass, field
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="some/model")

def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path, torch_dtype=torch.bfloat16
    )
    Trainer(model=model, args=training_args).train()

if __name__ == "__main__":
    main()
"""
OWN = "from own import data, loop, options\nloop.train(options.parse(), data)\n"
MODULE = """\
import argparse

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    return parser.parse_args()

class Part:
    def step(self, batch):
        return [value * 2 for value in batch if value]
"""
ZERO2 = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2},
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
PLAN = [str(BIN / "safe-launch"), "plan", "--hardware", "dgx-a100-80gb", "--nproc-per-node", "8"]
CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "plan, Trainer": [
        *(*PLAN, "train.py", "--model_name_or_path", "llama", "--output_dir", "out"),
        *("--bf16", "True", "--per_device_train_batch_size", "4", "--deepspeed", "zero2.json"),
    ],
    "plan, several files": [*PLAN, "own_loop.py", "--batch-size", "8"],
}


def write_jobs(folder: Path) -> None:
    """Writes the scripts and their files."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "zero2.json").write_text(json.dumps(ZERO2))
    (folder / "llama").mkdir()
    (folder / "llama" / "config.json").write_text(json.dumps(LLAMA))
    (folder / "own_loop.py").write_text(OWN)
    (folder / "own").mkdir()
    for name in ("__init__", "data", "loop", "options"):
        (folder / "own" / f"{name}.py").write_text(MODULE * 20)


def cost(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU seconds of a command, and seconds to its first output or its end."""
    before, start = used(), time.monotonic()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        first = time.monotonic() - start
        process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return used() - before, first


def used() -> float:
    """CPU seconds of all ended children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measures, and prints a row for each command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as name:
        write_jobs(Path(name))
        for _ in range(rounds + 1):
            for case, command in CASES.items():
                measured[case].append(cost(command, Path(name)))
    base = None
    for case, costs in measured.items():
        cpu, first = (statistics.median(column) for column in zip(*costs[1:], strict=True))
        base = base or cpu
        print(f"{case:<20} {cpu:6.3f} s CPU ({cpu / base:4.1f})  first line {first:6.3f} s")


if __name__ == "__main__":
    main()
