"""The cost of questions at a launch: from the start to imports and to the first step.

    python benchmarks/launch/asking.py [--rounds N]

A script on Hugging Face's Trainer and a loop under DDP, two workers each, by torchrun and by
safe-launch with and without `--ask`, in turns, so that noise affects all equally. Neither needs a
change. Prints medians, their ratio to torchrun's, and the fastest and slowest.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
SAY = """\
import os, time
def say(word):
    os.write(1, f"{word} {time.time()}\\n".encode())
"""
TRAINER = f"""\
{SAY}
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
say("IMPORTED")
class FirstStep(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 1:
            say("STEPPED")
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=4,
                     num_hidden_layers=2, vocab_size=256)
data = [{{"input_ids": torch.arange(32), "labels": torch.arange(32)}}] * 16
arguments = TrainingArguments("out", max_steps=2, report_to="none", use_cpu=True,
                              save_strategy="no", disable_tqdm=True)
Trainer(LlamaForCausalLM(config), arguments, train_dataset=data, callbacks=[FirstStep()]).train()
"""
DDP = f"""\
{SAY}
import torch
say("IMPORTED")
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    model(torch.randn(16, 32)).pow(2).mean().backward()
    optimizer.step()
    if step == 0:
        say("STEPPED")
torch.distributed.destroy_process_group()
"""
SCRIPTS = {"a script on the Trainer": TRAINER, "a loop under DDP": DDP}
OURS = [str(BIN / "safe-launch"), "--nproc=2", "--log-dir=runs"]
LAUNCHERS = {
    "torchrun": [str(BIN / "torchrun"), "--nproc-per-node=2"],
    "--ask on": [*OURS, "--ask=on"],
    "--ask off": [*OURS, "--ask=off"],
}
MOMENTS = {"imports done": "IMPORTED", "first step": "STEPPED"}


def times(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds from the start until both workers reach each moment."""
    began = time.time()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    marks = {
        moment: [float(mark) for mark in re.findall(rf"{word} (\d+\.\d+)", done.stdout)]
        for moment, word in MOMENTS.items()
    }
    assert all(len(each) == 2 for each in marks.values()), done.stderr
    return {moment: max(each) - began for moment, each in marks.items()}


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    os.environ |= {"SAFE_LAUNCH_LESSONS": "off", "OMP_NUM_THREADS": "1"}
    print(f"| case | {' | '.join(LAUNCHERS)} |\n|---|{'---|' * len(LAUNCHERS)}")
    with tempfile.TemporaryDirectory() as name:
        folder, script = Path(name), Path(name, "train.py")
        for case, text in SCRIPTS.items():
            script.write_text(text)
            taken: dict[str, list[dict[str, float]]] = {launcher: [] for launcher in LAUNCHERS}
            for turn in range(-1, rounds):  # the first fills the page cache
                for launcher, command in LAUNCHERS.items():
                    measured = times([*command, str(script)], folder)
                    if turn >= 0:
                        taken[launcher].append(measured)
            for moment in MOMENTS:
                reference = statistics.median(each[moment] for each in taken["torchrun"])
                cells = []
                for each in taken.values():
                    values = [one[moment] for one in each]
                    middle = statistics.median(values)
                    spread = f"{min(values):.2f} to {max(values):.2f}"
                    cells.append(f"{middle:.2f} s ({middle / reference:.2f}), {spread}")
                print(f"| {case}: {moment} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
