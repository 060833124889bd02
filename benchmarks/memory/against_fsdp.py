"""Compares the memory model with FSDP2 itself, byte for byte, on a CPU.

The real `fully_shard` trains a small model for three steps as rank 0 of a world of 8 or 64, whose
other ranks are fake (fake_world.py). Units are made by accelerate's `fsdp2_prepare_model`, or as a
plain script makes them. Writes memory_fsdp.csv beside the other results, and a page with a table
and a plot. It takes half an hour on one core.

    python benchmarks/memory/against_fsdp.py         # measures, then reports
    python benchmarks/memory/against_fsdp.py report
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import fake_world
from fake_world import DOCS, MODELS, OTHERS, Case, Compared, Measured

RESULTS = fake_world.RESULTS / "memory_fsdp.csv"
WAYS = ("accelerate", "plain", "whole")
"""Makers of the units: accelerate, a script with one for each layer, a script with one in all."""
VARIANTS: list[Case] = [
    {},
    {"world": 64},
    {"checkpointing": "non_reentrant"},
    {"checkpointing": "non_reentrant", "micro_batch": 4},
    {"accumulation": 2},
    {"accumulation": 2, "checkpointing": "non_reentrant", "reduced": "fp32"},
    {"lora": True, "loaded": "bf16"},
    {"lora": True, "loaded": "bf16", "checkpointing": "non_reentrant"},
    {"lora": True, "loaded": "bf16", "world": 64, "checkpointing": "non_reentrant"},
    {"resharded": False},
    {"resharded": False, "checkpointing": "non_reentrant"},
    {"loaded": "bf16", "checkpointing": "non_reentrant"},
    {"reduced": "fp32", "checkpointing": "non_reentrant"},
    {"precision": "fp32", "checkpointing": "non_reentrant"},
    {"offload": "optimizer_and_parameters", "checkpointing": "non_reentrant"},
]
OTHERS_VARIANTS: list[Case] = [
    {},
    {"checkpointing": "non_reentrant"},
    {"micro_batch": 4, "world": 64},
]
BASE: Case = {
    "world": 8, "checkpointing": "off", "micro_batch": 2, "accumulation": 1, "lora": False,
    "offload": "none", "sequence": 256, "precision": "bf16", "loaded": "fp32", "reduced": "",
    "resharded": True,
}  # fmt: skip
DEPARTURES = ("world", "precision", "loaded", "reduced", "resharded", "offload", "accumulation")
"""Columns whose other values get separate lines in the report."""
VERSIONS = ("accelerate", "transformers", "torch")


def cases() -> Iterator[Case]:
    """Every configuration: models x ways x variants."""
    for models, variants in ((MODELS, VARIANTS), (OTHERS, OTHERS_VARIANTS)):
        for model in models:
            for way in WAYS if models is MODELS else WAYS[:2]:
                for variant in variants if way != "whole" else variants[:5]:
                    yield {"model": model, "way": way, **BASE, **variant}


def train(case: Case) -> Measured:
    """Measures FSDP2's bytes."""
    import torch
    from live_bytes import LiveBytes, ZeroProducts
    from safe_launch.evidence import observations

    loaded = torch.float32 if case["loaded"] == "fp32" else torch.bfloat16
    model, config = fake_world.model_of(case, dtype=loaded, attn_implementation="sdpa")
    weights = observations.shape_of(model)["weights"]
    (by_accelerate if case["way"] == "accelerate" else by_hand)(model, case)
    optimizer = torch.optim.AdamW(
        (one for one in model.parameters() if one.requires_grad), fused=True
    )
    ids = torch.randint(0, config.vocab_size, (case["micro_batch"], case["sequence"]))
    live = LiveBytes()
    for tensor in (*model.parameters(), *model.buffers()):
        live.add(tensor)
    peak = 0
    with ZeroProducts(), live:
        for step in range(3):
            live.peak = live.now
            for number in range(case["accumulation"]):
                if case["way"] == "accelerate":
                    model.set_requires_gradient_sync(number + 1 == case["accumulation"])
                model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step:
                peak = max(peak, live.peak)
        gc.collect()
    return live.now, peak, weights


def by_accelerate(model: Any, case: Case) -> None:
    """Makes units like accelerate, without its `Accelerator`, which has no FSDP on a CPU."""
    import torch
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        reshard_after_forward=case["resharded"],
        cpu_offload=offload(case),
        cpu_ram_efficient_loading=False,
        mixed_precision_policy=policy(case),
    )
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16" if case["precision"] == "bf16" else "no",
        is_main_process=False,
        device=torch.device("cpu"),
    )
    fsdp2_prepare_model(accelerator, model)


def by_hand(model: Any, case: Case) -> None:
    """Makes units like plain scripts: of each layer, or none, and of the model."""
    from torch.distributed.fsdp import fully_shard

    policies = {"mp_policy": policy(case), "offload_policy": offload(case)}
    names = model._no_split_modules if case["way"] == "plain" else ()
    for module in list(model.modules()):
        if type(module).__name__ in names:
            fully_shard(module, reshard_after_forward=case["resharded"], **policies)
    fully_shard(model, **policies)


def offload(case: Case) -> Any:
    """The offloading policy; without an accelerator memory can't be pinned."""
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

    return OffloadPolicy() if case["offload"] == "none" else CPUOffloadPolicy(pin_memory=False)


def policy(case: Case) -> Any:
    """The types of computation and reduction."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    computed = types[case["precision"]]
    return MixedPrecisionPolicy(
        param_dtype=computed, reduce_dtype=types.get(case["reduced"], computed)
    )


def compare(row: Mapping[str, str]) -> Compared:
    """One row with its estimate."""
    from safe_launch.core.choices import Engine, Framework, Units
    from safe_launch.core.settings import Fact, Setting

    by_accelerate = row["way"] == "accelerate"
    units = Units.WHOLE if row["way"] == "whole" else Units.LAYERS
    facts = {
        Fact.ENGINE: Engine.FSDP.value,
        Fact.FSDP_VERSION: 2,
        Fact.FSDP_UNITS: units.value,
        Fact.SEQUENCE_LENGTH: int(row["sequence"]),
        Fact.LOADED_PRECISION: row["loaded"],
    }
    if by_accelerate:
        facts[Fact.MASTER_PRECISION] = "fp32"
    if row["reduced"]:
        facts[Fact.REDUCE_PRECISION] = row["reduced"]
    candidate: dict[Any, Any] = {
        Setting.OFFLOAD: row["offload"],
        Setting.RESHARD_AFTER_FORWARD: row["resharded"] == "True",
        Setting.GRADIENT_CHECKPOINTING: row["checkpointing"],
        Setting.MICRO_BATCH: int(row["micro_batch"]),
        Setting.ACCUMULATION: int(row["accumulation"]),
        Setting.PRECISION: row["precision"],
    }
    workload = fake_world.workload_of(
        row,
        facts,
        framework=Framework.ACCELERATE if by_accelerate else Framework.NONE,
        versions={name: row[name] for name in VERSIONS},
    )
    states, peak = fake_world.estimated(workload, candidate, int(row["world"]))
    stays = states.parameters + states.optimizer + states.host
    if row["offload"] != "none":
        stays -= states.host / 4  # AdamW's quarter: no gradient waits in host memory after a step
    return Compared(row, stays, peak)


INTRODUCTION = """\
# The memory model against FSDP2 itself, byte for byte

Written by `python benchmarks/memory/against_fsdp.py` (`report` alone doesn't measure again).
One process is rank 0 of 8 or 64 under torch's fake process group; the real `fully_shard` trains
small models for three steps on the CPU, and every tensor that is alive counts, as torch's
MemTracker would find. Products of matrices are zeros of the same size: that changes no byte. States
are what is there after a step, the peak is that of the steps after the first. Units are those that
accelerate's `fsdp2_prepare_model` makes, a plain script's layers and root, or the whole model as
one. The estimate counts no allocator's fragments here, since a CPU has none. With offload the bytes
of host and device are one sum, in which the estimate has the host's gradients from the start. All
rows are in `benchmarks/memory/results/memory_fsdp.csv`.
"""


def groups(row: Mapping[str, str]) -> Iterator[str]:
    """The table lines that count this row."""
    method = "LoRA" if row["lora"] == "True" else "full"
    yield f"units: {row['way']}, {method}"
    yield f"model {row['model']}"
    yield f"checkpointing {row['checkpointing']}"
    for name in DEPARTURES:
        if row[name] != str(BASE[name]):
            yield f"{name} {row[name]}"


def report() -> None:
    """Writes the table and the plot."""
    rows = fake_world.compared(RESULTS, compare)
    fake_world.report("memory-fsdp", INTRODUCTION, fake_world.grouped(rows, groups), VERSIONS)
    ways = {way: [one for one in rows if one.row["way"] == way] for way in WAYS}
    fake_world.plot(ways, DOCS / "memory-fsdp.svg")


if __name__ == "__main__":
    fake_world.run(
        __file__,
        cases=cases(),
        together=("model", "way", "world"),
        results=RESULTS,
        packages=VERSIONS,
        train=train,
        report=report,
    )
