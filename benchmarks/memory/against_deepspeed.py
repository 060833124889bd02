"""Compares the memory model with DeepSpeed itself, byte for byte, on a CPU.

The real DeepSpeed engine trains a small model for three steps as rank 0 of a world of 8 or 64,
whose other ranks are fake (fake_world.py). Writes benchmarks/memory/results/memory_deepspeed.csv,
then docs/measured/memory-deepspeed.md and docs/measured/memory-deepspeed.svg.

    python benchmarks/memory/against_deepspeed.py         # measures, then reports; ten minutes
    python benchmarks/memory/against_deepspeed.py report
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import fake_world
from fake_world import DOCS, MODELS, OTHERS, Case, Compared, Measured

RESULTS = fake_world.RESULTS / "memory_deepspeed.csv"

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


def cases() -> Iterator[Case]:
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


def train(case: Case) -> Measured:
    """Measures DeepSpeed's bytes."""
    import deepspeed
    import torch
    from safe_launch.evidence import observations

    model, config = fake_world.model_of(case, attn_implementation=case["attention"])
    weights = observations.shape_of(model)["weights"]
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=configuration(case))
    tracker = fake_world.tracker()
    tracker.track_external(engine.module, getattr(optimizer, "optimizer", optimizer))
    parts = [one.ds_tensor for one in engine.module.parameters() if hasattr(one, "ds_tensor")]
    tracker.track_external(*[part for part in parts if part.data_ptr()])
    ids = torch.randint(0, config.vocab_size, (case["micro_batch"], case["sequence"]))

    def run(_number: int) -> None:
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()

    states, peak = fake_world.tracked(tracker, case["accumulation"], run)
    engine.destroy()
    return states, peak, weights


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


def compare(row: Mapping[str, str]) -> Compared:
    """One row with its estimate."""
    from safe_launch.core.choices import Engine
    from safe_launch.core.settings import Fact, Setting

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
    candidate: dict[Any, Any] = {
        Setting.ZERO_STAGE: int(row["stage"]),
        Setting.OFFLOAD: row["offload"],
        Setting.GRADIENT_CHECKPOINTING: row["checkpointing"],
        Setting.MICRO_BATCH: int(row["micro_batch"]),
        Setting.ACCUMULATION: int(row["accumulation"]),
        Setting.PRECISION: row["precision"],
    }
    versions = {"transformers": row["transformers"]}
    workload = fake_world.workload_of(row, facts, versions=versions)
    states, peak = fake_world.estimated(workload, candidate, int(row["world"]))
    stays = states.parameters + states.optimizer + states.host
    if row["stage"] == "3":
        stays += states.buckets + (0 if states.host else states.grads_between_micro_batches)
    return Compared(row, stays, peak)


INTRODUCTION = """\
# The memory model against DeepSpeed itself, byte for byte

Written by `python benchmarks/memory/against_deepspeed.py` (`report` alone doesn't measure again).
One process is rank 0 of 8 or 64 under torch's fake process group; the real DeepSpeed engine trains
small models for three steps on the CPU, and torch's MemTracker counts every tensor. States are what
is there after a step, the peak is that of the steps after the first. The estimate counts no
allocator's fragments here, since a CPU has none. All rows are in
`benchmarks/memory/results/memory_deepspeed.csv`.
"""


def groups(row: Mapping[str, str]) -> Iterator[str]:
    """The table lines that count this row."""
    method = "LoRA" if row["lora"] == "True" else "full"
    yield f"stage {row['stage']}, {method}"
    yield f"model {row['model']}"
    for name in ("attention", "precision"):
        if row[name] != BASE[name]:
            yield f"{name} {row[name]}"
    if row["offload"] != "none":
        yield "optimizer in host memory"
    yield f"checkpointing {row['checkpointing']}"


def report() -> None:
    """Writes the table and the plot."""
    rows = fake_world.compared(RESULTS, compare)
    fake_world.report("memory-deepspeed", INTRODUCTION, fake_world.grouped(rows, groups), VERSIONS)
    stages = {
        f"stage {stage}": [one for one in rows if one.row["stage"] == stage] for stage in "0123"
    }
    fake_world.plot(stages, DOCS / "memory-deepspeed.svg")


if __name__ == "__main__":
    fake_world.run(
        __file__,
        cases=cases(),
        together=("model", "stage", "world"),
        results=RESULTS,
        packages=VERSIONS,
        train=train,
        report=report,
    )
