"""Shared code of the comparisons with real engines: models, fake ranks, bytes, reports.

One process is rank 0 of a world without other ranks: torch's fake process group answers every
collective at once. torch's MemTracker counts the bytes of all tensors.
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "measured"
RESULTS = ROOT / "benchmarks" / "memory" / "results"

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

Case = dict[str, Any]
Measured = tuple[int, int, list[list[Any]]]
"""Bytes after a step, bytes at the peak of the steps after the first, and the parameters."""


def measure_all(
    script: str, cases: Iterable[Case], together: tuple[str, ...], results: Path, *packages: str
) -> None:
    """Measures every case; cases equal in the columns `together` share a process.

    The rows are written after each group: an interrupted run has some.
    """
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(case[name] for name in together), []).append(case)
    rows: list[Case] = []
    for members in groups.values():
        environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        environment.pop("RANK", None)
        command = [sys.executable, script, "one", json.dumps(members)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if len(found) != len(members):
            print(done.stderr[-600:], file=sys.stderr)
        rows += [json.loads(line.removeprefix("RESULT ")) for line in found]
        print(f"{len(rows)} measured", flush=True)
        columns = [*members[0], "states", "peak", "weights", *packages]
        with results.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)


def measure(
    members: list[Case], train: Callable[[Case], Measured], packages: tuple[str, ...]
) -> None:
    """Trains each case in this process and prints its bytes."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = members[0]["world"]
    if "RANK" in os.environ:  # the other ranks are real
        dist.init_process_group("gloo")
    else:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT="29531")  # fmt: skip
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    versions = {name: version(name) for name in packages}
    versions["torch"] += f" {platform.machine()}"
    for case in members:
        torch.manual_seed(0)
        states, peak, weights = train(case)
        gc.collect()
        row = {**case, "states": states, "peak": peak, "weights": json.dumps(weights), **versions}
        print("RESULT " + json.dumps(row), flush=True)


def model_of(case: Case, **loaded: Any) -> tuple[Any, Any]:
    """The model of a case, with random weights, and its configuration."""
    from transformers import AutoConfig, AutoModelForCausalLM

    numbers = {**MODELS, **OTHERS}[case["model"]].copy()
    config = AutoConfig.for_model(numbers.pop("model_type"), use_cache=False, **numbers)
    model: Any = AutoModelForCausalLM.from_config(config, **loaded)
    if case["lora"]:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    if case["checkpointing"] != "off":
        reentrant = case["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        # Otherwise the embedding's output is no leaf, whose gradient would stay.
        (model.enable_input_require_grads if reentrant else model.disable_input_require_grads)()
    return model, config


def tracker() -> Any:
    """A tracker for models with frozen parameters, which take no gradient hooks."""
    from torch.distributed._tools.mem_tracker import MemTracker

    class Tracker(MemTracker):
        def _track_module_params_and_buffers(self, module: Any, **_hooks: Any) -> Any:
            return super()._track_module_params_and_buffers(module, install_grad_hooks=False)

    return Tracker()


def tracked(tracker: Any, micro_batches: int, run: Callable[[int], None]) -> tuple[int, int]:
    """Bytes after three steps, and at the peak of the last two.

    Args:
        tracker: of the model and its optimizer.
        micro_batches: of a step.
        run: trains on the micro batch with this number.
    """
    from live_bytes import ZeroProducts

    peak = 0
    with ZeroProducts(), tracker:
        for step in range(3):
            for number in range(micro_batches):
                run(number)
                tracker.reset_mod_stats()
            if step:
                peak = max(peak, total(tracker.get_tracker_snapshot("peak")))
            tracker._peak_mem, tracker._peak_mem_snap = {}, {}
        gc.collect()
        states = total(tracker.get_tracker_snapshot("current"))
    return states, peak


def total(snapshot: dict[Any, dict[Any, int]]) -> int:
    """Bytes of a snapshot on all devices."""
    return sum(int(kinds["Total"]) for kinds in snapshot.values())


def workload_of(row: Mapping[str, str], facts: Mapping[Any, Any], **others: Any) -> Any:
    """safe-launch's knowledge of a row's training, once a worker has seen the model."""
    from safe_launch.core.workload import Known, Origin, Workload
    from safe_launch.workload.models.from_config import model_from_config, weights_of

    weights = weights_of({"weights": json.loads(row["weights"])})
    model = model_from_config({**MODELS, **OTHERS}[row["model"]], weights, "observed")
    known = {fact: Known(value, Origin.OBSERVED, "bench") for fact, value in facts.items()}
    return Workload(known=known, model=model, **others)


@dataclass(frozen=True, slots=True)
class Compared:
    """A measured row with its estimate, in bytes."""

    row: Mapping[str, str]
    states: float
    peak: float

    @property
    def errors(self) -> tuple[float, float]:
        """Of states and peak, relative to the measurement."""
        measured = int(self.row["states"]), int(self.row["peak"])
        return self.states / measured[0] - 1, self.peak / measured[1] - 1


def estimated(workload: Any, candidate: Any, world: int) -> tuple[Any, float]:
    """The states on a rank, and its bytes at the peak without an allocator's fragments."""
    from safe_launch.core.choices import Precision
    from safe_launch.core.hardware import Accelerator, Hardware
    from safe_launch.planning.estimates import memory
    from safe_launch.planning.estimates.estimate import Ranks
    from safe_launch.planning.estimates.model_sizes import model_sizes_of

    cpu = Accelerator("cpu", "cpu", 0, 0, frozenset(Precision), 1.0, 1.0, 1.0, 1.0, 1.0)
    hardware = Hardware(cpu, 0, 2, 2**34)
    sizes = model_sizes_of(workload)
    assert sizes is not None
    states = memory.states_of(sizes, candidate, world)
    estimate = memory.estimate(workload, candidate, hardware, Ranks(world, world))
    assert estimate is not None
    slack = estimate.peak.components[memory.Component.SLACK]
    return states, estimate.expected - slack


def compared(results: Path, compare: Callable[[dict[str, str]], Compared]) -> list[Compared]:
    """Every measured row with its estimate."""
    with results.open(encoding="utf-8") as file:
        return [compare(row) for row in csv.DictReader(file)]


def grouped(
    rows: list[Compared], names: Callable[[Mapping[str, str]], Iterable[str]]
) -> dict[str, list[Compared]]:
    """All rows, and each group with its rows."""
    groups: dict[str, list[Compared]] = {"all": rows}
    for one in rows:
        for name in names(one.row):
            groups.setdefault(name, []).append(one)
    return groups


def report(
    name: str, introduction: str, groups: dict[str, list[Compared]], packages: tuple[str, ...]
) -> None:
    """Writes the page `name`.md with a table of the groups' errors."""
    row = groups["all"][0].row
    lines = [
        introduction,
        ", ".join(f"{package} {row[package]}" for package in packages),
        "",
        "| configurations | n | states, median | states, worst | peak, median | peak, worst |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group in sorted(groups):
        errors = [[abs(error) for error in one.errors] for one in groups[group]]
        cells = []
        for kind in (0, 1):
            sizes = [pair[kind] for pair in errors]
            cells += [f"{statistics.median(sizes):.2%}", f"{max(sizes):.2%}"]
        lines.append(f"| {group} | {len(errors)} | {' | '.join(cells)} |")
    lines += ["", f"![estimated against measured]({name}.svg)", ""]
    (DOCS / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines[3:-2]))


def plot(series: dict[str, list[Compared]], path: Path) -> None:
    """Plots estimated over measured peaks, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib isn't installed (pip install 'safe-launch[benchmarks]')")
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "safe-launch"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 6))
    for label, own in series.items():
        axes.scatter(
            [int(one.row["peak"]) / 2**20 for one in own],
            [one.peak / 2**20 for one in own],
            s=14,
            label=label,
        )
    most = max(int(one.row["peak"]) for own in series.values() for one in own) / 2**20
    axes.plot([0, most], [0, most], color="grey", linewidth=0.8)
    axes.set_xlabel("measured peak, MiB")
    axes.set_ylabel("estimated peak, MiB")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def run(
    script: str,
    *,
    cases: Iterable[Case],
    together: tuple[str, ...],
    results: Path,
    packages: tuple[str, ...],
    train: Callable[[Case], Measured],
    report: Callable[[], None],
) -> None:
    """A comparison's command line: all of it, `report` alone, or `one` process's cases."""
    command = sys.argv[1] if len(sys.argv) > 1 else "all"
    if command == "one":
        measure(json.loads(sys.argv[2]), train, packages)
        return
    if command != "report":
        measure_all(script, cases, together, results, *packages)
    report()
