"""Compares the memory model with DeepSpeed itself, byte for byte, on a CPU.

One process is rank 0 of a world of 8 or 64: torch's fake process group answers every collective at
once. The real DeepSpeed engine trains a small model for three steps, and torch's MemTracker counts
the bytes of all tensors. Writes benchmarks/memory/results/memory_deepspeed.csv, then
docs/measured/memory-deepspeed.md and docs/measured/memory-deepspeed.svg.

    python benchmarks/memory/against_deepspeed.py         # measures, then reports; ten minutes
    python benchmarks/memory/against_deepspeed.py report
"""

from __future__ import annotations

import csv
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "memory" / "results" / "memory_deepspeed.csv"

MODELS: dict[str, dict[str, Any]] = {
    "llama-5m": {"model_type": "llama", "hidden_size": 256, "intermediate_size": 688,
                 "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
                 "vocab_size": 4096, "tie_word_embeddings": False},
    "qwen2-6m-tied": {"model_type": "qwen2", "hidden_size": 192, "intermediate_size": 512,
                      "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2,
                      "vocab_size": 16384, "tie_word_embeddings": True},
    "qwen3-21m": {"model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1536,
                  "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
                  "head_dim": 64, "vocab_size": 2048, "tie_word_embeddings": False},
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "gpt2-5m": {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 512,
                "vocab_size": 4096, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
                "activation_function": "gelu_new"},
    "gemma-6m": {"model_type": "gemma", "hidden_size": 256, "intermediate_size": 1024,
                 "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1,
                 "head_dim": 64, "vocab_size": 8192, "hidden_act": "gelu_pytorch_tanh"},
    "phi3-5m": {"model_type": "phi3", "hidden_size": 256, "intermediate_size": 768,
                "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
                "vocab_size": 4096, "pad_token_id": 0, "resid_pdrop": 0.0},
    "gpt_neox-5m": {"model_type": "gpt_neox", "hidden_size": 256, "intermediate_size": 1024,
                    "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 4096,
                    "hidden_act": "gelu"},
    "qwen3_moe-6m": {"model_type": "qwen3_moe", "hidden_size": 256, "intermediate_size": 512,
                     "moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2,
                     "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
                     "head_dim": 32, "vocab_size": 4096},
}  # fmt: skip
"""Other families: another norm, another feed-forward part, experts."""
VARIANTS: list[dict[str, Any]] = [
    {},
    {"world": 64},
    {"checkpointing": "reentrant"},
    {"checkpointing": "non_reentrant", "micro_batch": 4},
    {"accumulation": 2},
    {"lora": True},
    {"lora": True, "checkpointing": "non_reentrant"},
    {"offload": "optimizer", "checkpointing": "non_reentrant"},
    {"attention": "eager"},
    {"precision": "fp32", "checkpointing": "non_reentrant"},
]
OTHERS_VARIANTS: list[dict[str, Any]] = [
    {},
    {"checkpointing": "non_reentrant"},
    {"micro_batch": 4, "world": 64},
]
BASE: dict[str, Any] = {
    "world": 8, "checkpointing": "off", "micro_batch": 2, "accumulation": 1, "lora": False,
    "offload": "none", "sequence": 256, "attention": "sdpa", "precision": "bf16",
}  # fmt: skip
BUCKETS = {
    "reduce_bucket_size": 200_000,
    "stage3_prefetch_bucket_size": 50_000,
    "stage3_param_persistence_threshold": 1_000,
    "stage3_max_live_parameters": 400_000,
    "stage3_max_reuse_distance": 400_000,
}
VERSIONS = ("deepspeed", "transformers", "torch")
COLUMNS = ["model", "stage", *BASE, "states", "peak", "weights", *VERSIONS]


def cases() -> Iterator[dict[str, Any]]:
    """Every configuration: models x stages x variants."""
    for model in MODELS:
        for stage in (0, 1, 2, 3):
            for variant in VARIANTS if stage else VARIANTS[:6]:
                if stage or variant.get("world") != 64:
                    yield {"model": model, "stage": stage, **BASE, **variant}
    for model in OTHERS:
        for stage in (2, 3):
            for variant in OTHERS_VARIANTS:
                yield {"model": model, "stage": stage, **BASE, **variant}


def measure_all() -> None:
    """Measures every case, the cases of one world, model and stage in one process."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for case in cases():
        groups.setdefault((case["model"], case["stage"], case["world"]), []).append(case)
    rows: list[dict[str, Any]] = []
    for members in groups.values():
        environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "one", json.dumps(members)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if len(found) != len(members):
            print(done.stderr[-600:], file=sys.stderr)
        rows += [json.loads(line.removeprefix("RESULT ")) for line in found]
        print(f"{len(rows)} measured", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def measure(members: list[dict[str, Any]]) -> None:
    """Trains each case in this process and prints what it held."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = members[0]["world"]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29531")  # fmt: skip
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    import deepspeed
    import transformers

    for case in members:
        torch.manual_seed(0)
        states, peak, weights = train(case)
        gc.collect()
        versions = {
            "deepspeed": deepspeed.__version__,
            "transformers": transformers.__version__,
            "torch": f"{torch.__version__} {platform.machine()}",
        }
        row = {**case, "states": states, "peak": peak, "weights": json.dumps(weights), **versions}
        print("RESULT " + json.dumps(row), flush=True)


def train(case: dict[str, Any]) -> tuple[int, int, list[list[Any]]]:
    """Bytes after a step, bytes at the peak of the steps after the first, and the parameters."""
    import deepspeed
    import torch
    from safe_launch.evidence import observations
    from torch.distributed._tools.mem_tracker import MemTracker
    from transformers import AutoConfig, AutoModelForCausalLM

    numbers = {**MODELS, **OTHERS}[case["model"]].copy()
    config = AutoConfig.for_model(numbers.pop("model_type"), use_cache=False, **numbers)
    model: Any = AutoModelForCausalLM.from_config(config, attn_implementation=case["attention"])
    if case["lora"]:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    if case["checkpointing"] != "off":
        reentrant = case["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        # Without a need for it the embedding's output is no leaf, whose gradient would stay.
        (model.enable_input_require_grads if reentrant else model.disable_input_require_grads)()
    weights = observations.shape_of(model)["weights"]
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=configuration(case))

    class Tracker(MemTracker):
        """A tracker for models with frozen parameters, which take no gradient hooks."""

        def _track_module_params_and_buffers(self, module: Any, **_hooks: Any) -> Any:
            return super()._track_module_params_and_buffers(module, install_grad_hooks=False)

    tracker = Tracker()
    tracker.track_external(engine.module, getattr(optimizer, "optimizer", optimizer))
    parts = [one.ds_tensor for one in engine.module.parameters() if hasattr(one, "ds_tensor")]
    tracker.track_external(*[part for part in parts if part.data_ptr()])
    ids = torch.randint(0, config.vocab_size, (case["micro_batch"], case["sequence"]))
    peak = 0
    with tracker:
        for step in range(3):
            for _ in range(case["accumulation"]):
                engine.backward(engine(input_ids=ids, labels=ids).loss)
                engine.step()
                tracker.reset_mod_stats()
            if step:
                peak = max(peak, total(tracker.get_tracker_snapshot("peak")))
            tracker._peak_mem, tracker._peak_mem_snap = {}, {}
        gc.collect()
        states = total(tracker.get_tracker_snapshot("current"))
    engine.destroy()
    return states, peak, weights


def total(snapshot: dict[Any, dict[Any, int]]) -> int:
    """Bytes on all devices of a snapshot."""
    return sum(int(kinds["Total"]) for kinds in snapshot.values())


def configuration(case: dict[str, Any]) -> dict[str, Any]:
    """The DeepSpeed configuration of a case."""
    zero: dict[str, Any] = {"stage": case["stage"], **BUCKETS}
    if case["offload"] != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    return {
        "train_micro_batch_size_per_gpu": case["micro_batch"],
        "gradient_accumulation_steps": case["accumulation"],
        "bf16": {"enabled": case["precision"] == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True, "fused": True}},
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": zero,
    }


def workload_of(row: dict[str, str]) -> Any:
    """What safe-launch would know of a row's training, once a worker has seen the model."""
    from safe_launch.core.certainty import Origin
    from safe_launch.core.model import Weight
    from safe_launch.core.settings import Engine, Fact
    from safe_launch.core.workload import Known, Workload
    from safe_launch.workload.models.from_config import model_from_config

    weights = tuple(
        Weight(name, tuple(shape), count, trained, bits)
        for name, shape, trained, bits, count in json.loads(row["weights"])
    )
    model = model_from_config({**MODELS, **OTHERS}[row["model"]], weights, "observed")
    facts = {
        Fact.ENGINE: Engine.DEEPSPEED.value,
        Fact.ATTENTION: row["attention"],
        Fact.SEQUENCE_LENGTH: int(row["sequence"]),
        Fact.REDUCE_BUCKET: BUCKETS["reduce_bucket_size"],
        Fact.PREFETCH_BUCKET: BUCKETS["stage3_prefetch_bucket_size"],
        Fact.PERSISTENCE_THRESHOLD: BUCKETS["stage3_param_persistence_threshold"],
        Fact.MAX_LIVE_PARAMETERS: BUCKETS["stage3_max_live_parameters"],
        Fact.MAX_REUSE_DISTANCE: BUCKETS["stage3_max_reuse_distance"],
    }
    known = {fact: Known(value, Origin.OBSERVED, "bench") for fact, value in facts.items()}
    return Workload(known=known, model=model, versions={"transformers": row["transformers"]})


INTRODUCTION = """\
# The memory model against DeepSpeed itself, byte for byte

Written by `python benchmarks/memory/against_deepspeed.py` (`report` alone doesn't measure again).
One process is rank 0 of 8 or 64 under torch's fake process group; the real DeepSpeed engine trains
small models for three steps on the CPU, and torch's MemTracker counts every tensor. States are what
is there after a step, the peak is that of the steps after the first. The estimate counts no
allocator's fragments here, since a CPU has none. All rows are in
`benchmarks/memory/results/memory_deepspeed.csv`.
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """One row of the measurements beside its estimate, in bytes."""

    row: dict[str, str]
    states: float
    peak: float

    @property
    def errors(self) -> tuple[float, float]:
        """Of states and peak, relative to what was measured."""
        measured = int(self.row["states"]), int(self.row["peak"])
        return self.states / measured[0] - 1, self.peak / measured[1] - 1


def compared() -> list[Compared]:
    """Every measured row with its estimate."""
    with RESULTS.open(encoding="utf-8") as file:
        return [compare(row) for row in csv.DictReader(file)]


def compare(row: dict[str, str]) -> Compared:
    """One row with its estimate."""
    from safe_launch.core.hardware import Accelerator, Hardware
    from safe_launch.core.settings import Precision, Setting
    from safe_launch.planning.estimates import memory
    from safe_launch.planning.estimates.memory import states_of
    from safe_launch.planning.estimates.model_sizes import model_sizes_of
    from safe_launch.planning.estimates.ranks import Ranks

    cpu = Accelerator("cpu", "cpu", 0, 0, frozenset(Precision), 1.0, 1.0, 1.0, 1.0, 1.0)
    hardware = Hardware(cpu, 0, 2, 2**34)
    candidate: dict[Any, Any] = {
        Setting.ZERO_STAGE: int(row["stage"]),
        Setting.OFFLOAD: row["offload"],
        Setting.GRADIENT_CHECKPOINTING: row["checkpointing"],
        Setting.MICRO_BATCH: int(row["micro_batch"]),
        Setting.ACCUMULATION: int(row["accumulation"]),
        Setting.PRECISION: row["precision"],
    }
    workload, world = workload_of(row), int(row["world"])
    job = model_sizes_of(workload)
    assert job is not None
    states = states_of(job, candidate, world)
    stays = states.parameters + states.optimizer + states.host
    if row["stage"] == "3":
        stays += states.buckets + (0 if states.host else states.grads_between_micro_batches)
    estimate = memory.estimate(workload, candidate, hardware, Ranks(world, world))
    assert estimate is not None
    slack = estimate.peak.components[memory.Component.SLACK]
    return Compared(row, stays, estimate.expected - slack)


def report(folder: Path) -> None:
    """Writes the table and the plot."""
    rows = compared()
    groups: dict[str, list[Compared]] = {"all": rows}
    for one in rows:
        row = one.row
        method = "LoRA" if row["lora"] == "True" else "full"
        groups.setdefault(f"stage {row['stage']}, {method}", []).append(one)
        groups.setdefault(f"model {row['model']}", []).append(one)
        for name in ("attention", "precision"):
            if row[name] != BASE[name]:
                groups.setdefault(f"{name} {row[name]}", []).append(one)
        if row["offload"] != "none":
            groups.setdefault("optimizer in host memory", []).append(one)
        groups.setdefault(f"checkpointing {row['checkpointing']}", []).append(one)
    lines = [
        INTRODUCTION,
        ", ".join(f"{name} {rows[0].row[name]}" for name in VERSIONS),
        "",
        "| configurations | n | states, median | states, worst | peak, median | peak, worst |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in sorted(groups):
        errors = [[abs(error) for error in one.errors] for one in groups[name]]
        cells = []
        for kind in (0, 1):
            sizes = [pair[kind] for pair in errors]
            cells += [f"{statistics.median(sizes):.2%}", f"{max(sizes):.2%}"]
        lines.append(f"| {name} | {len(errors)} | {' | '.join(cells)} |")
    lines += ["", "![estimated against measured](memory-deepspeed.svg)", ""]
    (folder / "memory-deepspeed.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines[3:-2]))
    plot(rows, folder / "memory-deepspeed.svg")


def plot(rows: list[Compared], path: Path) -> None:
    """Estimated against measured peaks; left out where matplotlib isn't installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib isn't installed (pip install 'safe-launch[benchmarks]')")
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "safe-launch"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 6))
    for stage in "0123":
        own = [one for one in rows if one.row["stage"] == stage]
        axes.scatter(
            [int(one.row["peak"]) / 2**20 for one in own],
            [one.peak / 2**20 for one in own],
            s=14,
            label=f"stage {stage}",
        )
    most = max(int(one.row["peak"]) for one in rows) / 2**20
    axes.plot([0, most], [0, most], color="grey", linewidth=0.8)
    axes.set_xlabel("measured peak, MiB")
    axes.set_ylabel("estimated peak, MiB")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) > 1 else "all"
    if command == "one":
        measure(json.loads(sys.argv[2]))
    else:
        if command != "report":
            measure_all()
        report(ROOT / "docs" / "measured")
