"""Compares the memory model with a real GPU: torch's allocator and the driver's own count.

Models of 0.5 to 8 B parameters with random weights; one process is rank 0 of 8 under torch's fake
process group, on the real device, with the real DeepSpeed engine and real steps. Each case runs in
a process of its own. Writes benchmarks/memory/results/memory_gpu.csv with the versions, and prints
the errors.

    python benchmarks/memory/on_gpu.py            # on a machine with a GPU; about a minute a case
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "memory" / "results" / "memory_gpu.csv"
WORLD = 8

MODELS: dict[str, dict[str, Any]] = {
    "qwen2-0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
                   "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
                   "tie_word_embeddings": True},
    "qwen2-1.5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
                   "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936,
                   "tie_word_embeddings": True},
    "qwen2-7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
                 "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
                 "tie_word_embeddings": False},
}  # fmt: skip
CASES = [
    {"model": model, "stage": stage, "checkpointing": mode, "micro_batch": micro, "length": length}
    for model in MODELS
    for stage in (2, 3)
    for mode, micro, length in (
        ("off", 1, 1024),
        ("non_reentrant", 1, 2048),
        ("non_reentrant", 4, 2048),
        ("reentrant", 2, 4096),
    )
]
COLUMNS = [*CASES[0], "allocated", "reserved", "driver", "expected", "bound", "device", "versions"]


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Trains three steps; bytes at the peak of the last two."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29541")  # fmt: skip
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    import deepspeed
    import transformers
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(use_cache=False, **MODELS[case["model"]])
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    if case["checkpointing"] != "off":
        reentrant = case["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    zero = {"stage": case["stage"], "overlap_comm": False}
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        config={
            "train_micro_batch_size_per_gpu": case["micro_batch"],
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "fused": True}},
            "zero_optimization": zero,
        },
    )
    shape = (case["micro_batch"], case["length"])
    for step in range(3):
        ids = torch.randint(0, config.vocab_size, shape, device="cuda")
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
        if step == 0:
            torch.cuda.reset_peak_memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "driver": total - free,
        "device": torch.cuda.get_device_name(),
        "versions": f"torch {torch.__version__}, deepspeed {deepspeed.__version__}, "
        f"transformers {transformers.__version__}",
    }


def estimated(case: dict[str, Any]) -> dict[str, int]:
    """What the memory model says, without the device's context."""
    from safe_launch.core.certainty import Origin
    from safe_launch.core.hardware import Accelerator, Hardware
    from safe_launch.core.settings import Fact, Precision, Setting
    from safe_launch.core.workload import Known, Workload
    from safe_launch.planning.estimates.memory import estimate
    from safe_launch.planning.estimates.ranks import Ranks
    from safe_launch.workload.models.from_config import model_from_config

    names = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    device = Accelerator(
        "gpu", "cuda", 2**40, 0, frozenset(Precision), 1.0, 1.0, 1.0, 1.0, 1.0, names
    )
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    model = model_from_config({**config, **MODELS[case["model"]]}, None, case["model"])
    facts = {Fact.ENGINE: "deepspeed", Fact.SEQUENCE_LENGTH: case["length"]}
    known = {name: Known(value, Origin.FLAG, "case") for name, value in facts.items()}
    settings = {
        Setting.ZERO_STAGE: case["stage"],
        Setting.GRADIENT_CHECKPOINTING: case["checkpointing"],
        Setting.MICRO_BATCH: case["micro_batch"],
        Setting.PRECISION: "bf16",
    }
    hardware = Hardware(device, WORLD, 1, 2**40)
    found = estimate(Workload(known=known, model=model), settings, hardware, Ranks(WORLD, WORLD))
    assert found is not None
    return {"expected": found.expected, "bound": found.bound}


def main() -> None:
    """Measures every case, writes and prints."""
    rows = []
    for case in CASES:
        command = [sys.executable, __file__, json.dumps(case)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not found:
            print(f"{case}: failed: {done.stderr.strip().splitlines()[-1:]}")
            continue
        row = {**case, **json.loads(found[0].removeprefix("RESULT ")), **estimated(case)}
        rows.append(row)
        error = row["expected"] / row["allocated"] - 1
        print(f"{case}: allocated {row['allocated'] / 2**30:.2f} GiB, error {error:+.1%}")
    if not rows:
        sys.exit("nothing was measured: is there a GPU?")
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    errors = [abs(row["expected"] / row["allocated"] - 1) for row in rows]
    over = sum(row["reserved"] > row["bound"] for row in rows)
    print(f"{len(rows)} cases: median {statistics.median(errors):.1%}, bound exceeded {over} times")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print("RESULT " + json.dumps(measure(json.loads(sys.argv[1]))))
    else:
        main()
