"""Estimates of memory against published measurements.

    python benchmarks/memory/against_published.py [DIRECTORY]

Writes memory-published.md, and memory-published.svg if matplotlib is installed, to DIRECTORY
(docs/measured/). The measurements, and what is known of how they were made, are in
benchmarks/memory/published/.
"""

from __future__ import annotations

import csv
import functools
import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from estimators import RULES, Run
from safe_launch.core.choices import Framework, Precision
from safe_launch.core.hardware import Accelerator, Hardware
from safe_launch.core.model import Model, Weight
from safe_launch.core.settings import Fact, Setting, name_of, parse_value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.planning.estimates.estimate import Component, Estimate, Ranks
from safe_launch.planning.estimates.memory import Family, estimate, family_of
from safe_launch.planning.estimates.model_sizes import model_sizes_of
from safe_launch.workload.models.from_config import model_from_config

PUBLISHED = Path(__file__).parent / "published"
GIB = 2**30
CARDS = {
    "a100-80gb": 79.2,
    "h100-80gb": 79.2,
    "rtx3090": 23.6,
    "a10": 22.1,
    "v100": 31.7,
    "l40s": 44.4,
    "a100-40gb": 39.4,
    "a100-44gb": 44.4,
    "v100-16gb": 15.8,
}
"""GiB that torch reports as the device's total."""
CONTEXT, CONTEXT_OF_MANY = int(0.8 * GIB), int(1.4 * GIB)
"""A CUDA context, alone and with NCCL's buffers; counted if the source may have read the
device's memory rather than torch's."""
FULL = 0.9
"""Share of a card above which reserved memory hardly shows the need."""
INTRODUCTION = """\
# Estimates beside published measurements

Written by `python benchmarks/memory/against_published.py`. The measurements, their sources and what
isn't known of them are in [their folder](../../benchmarks/memory/published/README.md). Two
constants are chosen by them, both about what torch's allocator keeps without expandable segments
though nothing uses it (`launcher/planning/estimates/allocator.py`): `varying` by ms-swift's
benchmark, `gathered` by Qwen's ZeRO-3 rows. The error is that of the estimate relative
to what was measured, without what the allocator adds where allocated memory was read; the last
column says how often the bound, which is what the launcher budgets, was exceeded. Only rows that
fill less than 90 % of their card.

## By family

Rows of one sample a batch, or of a known length: in a batch of several samples that are shorter
than the length that is estimated for, nobody knows how many tokens there were. Held out are rows
that no formula and no constant was changed for."""
SOURCES = """\
## By source

All rows. The lengths of ms-swift's samples vary: its benchmark gives reserved memory, fragments
included, and its scripts' data is shorter than the length that is estimated for."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement and its estimates.

    Attributes:
        source: its group.
        label: the run, in words.
        measured: bytes.
        family: its kind of training.
        full: whether it fills more than `FULL` of its card.
        known: whether the number of tokens is certain.
        held_out: whether no formula was changed for it.
        ours: our estimate.
        expected: its bytes; for allocated memory without the allocator's overhead.
        others: the estimates of other tools' rules that cover it, in bytes, by name.
    """

    source: str
    label: str
    measured: int
    family: Family
    full: bool
    known: bool
    held_out: bool
    ours: Estimate
    expected: int
    others: Mapping[str, float]

    def error(self, estimated: float) -> float:
        """Relative to the measured memory; positive for an overestimate."""
        return estimated / self.measured - 1


def workload_of(row: Mapping[str, str], stack: Mapping[str, Any], model: Model) -> Workload:
    """The workload of a row's source."""
    facts: dict[Fact | Setting, Any] = {
        name_of(key): value for key, value in stack["facts"].items()
    }
    facts[Fact.SEQUENCE_LENGTH] = int(row["seq_len"])
    facts[Fact.ADAPTER] = "lora" if row["method"] == "lora" else "none"
    for fact in (Fact.ATTENTION, Fact.LORA_TARGETS, Fact.LORA_SAVED):
        if row.get(fact.value):
            facts[fact] = row[fact.value]
    for fact in (Fact.LORA_RANK, Fact.QUANTIZATION_BITS):
        if row[fact.value]:
            facts[fact] = int(row[fact.value])
    if row["precision"] == "fp16":
        facts[Fact.LOADED_PRECISION] = Precision.FP16.value
    facts |= own(row)
    return Workload(
        framework=Framework(stack["framework"]),
        known={name: Known(value, Origin.CONFIG, row["url"]) for name, value in facts.items()},
        versions=stack["versions"],
        model=model,
    )


def candidate_of(row: Mapping[str, str], stack: Mapping[str, Any]) -> dict[Setting, Any]:
    """The settings of a row's source."""
    recomputed = stack["settings"]["gradient_checkpointing"]
    candidate: dict[Setting, Any] = {
        Setting.OFFLOAD: row["offload"],
        Setting.GRADIENT_CHECKPOINTING: recomputed if _recomputes(row) else "off",
        Setting.MICRO_BATCH: int(row["micro_batch"]),
        Setting.ACCUMULATION: stack["settings"]["accumulation"],
        Setting.PRECISION: row["precision"],
    }
    if row["zero_stage"]:
        candidate[Setting.ZERO_STAGE] = int(row["zero_stage"])
    return candidate | {name: value for name, value in own(row).items() if name in Setting}


def own(row: Mapping[str, str]) -> dict[Fact | Setting, Any]:
    """A row's column `facts`, beside its stack's: `name=value`, separated by spaces."""
    pairs = (word.split("=", 1) for word in row["facts"].split())
    return {name_of(name): parse_value(name_of(name), yaml.safe_load(raw)) for name, raw in pairs}


def _recomputes(row: Mapping[str, str]) -> bool:
    return row["gradient_checkpointing"] == "true"


def hardware_of(row: Mapping[str, str]) -> Hardware:
    """The row's card; without a context if torch's own count was read."""
    accelerator = Accelerator(
        name=row["gpu"],
        kind="cuda",
        memory=int(CARDS[row["gpu"]] * GIB),
        taken=_context(row),
        precisions=frozenset(Precision),
        compute=1.0,
        bandwidth=1.0,
        link=1.0,
        node_link=1.0,
        host_link=1.0,
    )
    return Hardware(accelerator, int(row["n_gpus"]), cores=8, host_memory=2**40)


def _context(row: Mapping[str, str]) -> int:
    if row["kind"] != "unknown":
        return 0
    return CONTEXT if int(row["n_gpus"]) == 1 else CONTEXT_OF_MANY


def run_of(row: Mapping[str, str], model: Model) -> Run:
    """The row in the terms of other tools' rules."""
    layers = model.language
    stage = row["zero_stage"]
    return Run(
        parameters=model.parameters,
        hidden=layers.hidden,
        layers=layers.layers,
        heads=layers.heads,
        kv_heads=layers.kv_heads,
        ffn=layers.ffn,
        gated=layers.gated,
        vocabulary=model.vocabulary,
        full=row["method"] == "full",
        bits=int(row["quantization_bits"] or 16),
        zero_stage=int(stage) if stage else None,
        world=int(row["n_gpus"]),
        micro_batch=int(row["micro_batch"]),
        length=int(row["seq_len"]),
        checkpointing=_recomputes(row),
        pure_16_bit=not stage,
    )


@functools.cache
def _weights() -> dict[str, list[tuple[str, list[int], int]]]:
    text = (PUBLISHED / "weights.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def weights_of(name: str) -> tuple[Weight, ...]:
    """The weights of a published model."""
    return tuple(Weight(each, tuple(shape), count) for each, shape, count in _weights()[name])


def read_rows() -> list[Row]:
    """All published measurements with their estimates."""
    stacks = yaml.safe_load((PUBLISHED / "stacks.yaml").read_text(encoding="utf-8"))
    shapes = json.loads((PUBLISHED / "models.json").read_text(encoding="utf-8"))
    models = {
        name: model_from_config(one["config"], weights_of(name), name)
        for name, one in shapes.items()
    }
    with (PUBLISHED / "measurements.csv").open(encoding="utf-8") as file:
        return [
            _row(one, stacks[one["stack"]], models[one["model"]]) for one in csv.DictReader(file)
        ]


def _row(row: Mapping[str, str], stack: Mapping[str, Any], model: Model | None) -> Row:
    assert model is not None, row["model"]
    hardware = hardware_of(row)
    count = int(row["n_gpus"])
    ranks = Ranks(world=count, on_host=count)
    workload = workload_of(row, stack, model)
    ours = estimate(workload, candidate_of(row, stack), hardware, ranks)
    sizes = model_sizes_of(workload)
    assert ours is not None, row
    assert sizes is not None, row
    run = run_of(row, model)
    others = {name: rule(run) for name, rule in RULES.items()}
    measured = float(row["measured_gib"])
    parts = [row["model"], row["section"], f"{row['micro_batch']} x {row['seq_len']}"]
    parts += [f"{row['quantization_bits']} bits"] * bool(row["quantization_bits"])
    return Row(
        source=row["stack"],
        label=", ".join(parts),
        measured=int(measured * GIB),
        family=family_of(sizes),
        full=measured > FULL * CARDS[row["gpu"]],
        known=row["length"] == "exact" or row["micro_batch"] == "1",
        held_out=row["held_out"] == "true",
        ours=ours,
        expected=_expected(ours, row["kind"]),
        others={name: value for name, value in others.items() if value is not None},
    )


def _expected(ours: Estimate, kind: str) -> int:
    """The estimate of the measured kind: allocated memory has no fragments and no cache."""
    if kind != "max_memory_allocated":
        return ours.expected
    added = (Component.SLACK, Component.KEPT)
    return max(
        sum(size for part, size in phase.components.items() if part not in added)
        for phase in ours.phases
    )


def summary(errors: Iterable[float]) -> str:
    """Cells: rows, median and 90th percentile of the absolute error, median of the signed one."""
    known = sorted(errors)
    if not known:
        return "0 | | | "
    sizes = sorted(abs(one) for one in known)
    last = sizes[min(int(0.9 * len(sizes)), len(sizes) - 1)]
    return (
        f"{len(known)} | {statistics.median(sizes):.1%} | {last:.1%} | "
        f"{statistics.median(known):+.1%}"
    )


def by_source(rows: list[Row]) -> list[str]:
    """A table: a line a source."""
    groups = {name: [row for row in rows if row.source == name] for name in _sources(rows)}
    return table("source", [*groups.items(), ("all", rows)])


def by_family(rows: list[Row]) -> list[str]:
    """A table: two lines a family, and two of all."""
    known = [row for row in rows if row.known]
    held = [row for row in known if row.held_out]
    groups = []
    for family in Family:
        for name, group in ((family.value, known), (f"{family.value}, held out", held)):
            groups.append((name, [row for row in group if row.family is family]))
    return table("family", [*groups, ("all", known), ("all, held out", held)])


def table(head: str, groups: Iterable[tuple[str, list[Row]]]) -> list[str]:
    """A table: a line a group."""
    lines = [
        f"| {head} | rows | median error | 90th percentile | median with sign | above the bound |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, group in groups:
        above = sum(row.measured > row.ours.bound for row in group) / max(len(group), 1)
        errors = (row.error(row.expected) for row in group)
        lines.append(f"| {name} | {summary(errors)} | {above:.1%} |")
    return lines


def _sources(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.source for row in rows))


def beside_others(rows: list[Row]) -> list[str]:
    """A table: two lines a rule, on the rows that the rule covers."""
    lines = [
        "| rule | rows | median error | 90th percentile | median with sign | below the measured |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for rule in RULES:
        covered = [row for row in rows if rule in row.others]
        theirs = [row.error(row.others[rule]) for row in covered]
        ours = [row.error(row.expected) for row in covered]
        for name, errors in ((rule, theirs), ("ours, same rows", ours)):
            below = sum(one < 0 for one in errors) / max(len(errors), 1)
            lines.append(f"| {name} | {summary(errors)} | {below:.0%} |")
    return lines


def worst(rows: list[Row], count: int = 15) -> list[str]:
    """A table of the measurements that exceed their bound by most."""
    over = [row for row in rows if row.measured > row.ours.bound]
    over.sort(key=lambda row: row.ours.bound / row.measured)
    lines = ["| source | run | measured | estimate | bound |", "|---|---|---:|---:|---:|"]
    for row in over[:count]:
        sizes = (row.measured, row.expected, row.ours.bound)
        cells = " | ".join(f"{size / GIB:.1f}" for size in sizes)
        lines.append(f"| {row.source} | {row.label} | {cells} |")
    return lines


def report(rows: list[Row]) -> str:
    """The page."""
    usable = [row for row in rows if not row.full]
    exact = [row for row in usable if not row.source.startswith(("ms-swift", "peft"))]
    parts = [
        INTRODUCTION,
        "\n".join(by_family(usable)),
        SOURCES,
        "\n".join(by_source(usable)),
        "Rows above 90 % of their card, which say little about need:",
        "\n".join(by_source([row for row in rows if row.full])),
        "## Beside the rules of others",
        "Each rule on the rows that its authors say it covers, where the length is exact.",
        "\n".join(beside_others(exact)),
        "The same on all rows that fill less than 90 % of their card.",
        "\n".join(beside_others(usable)),
        "## Where the bound fails most",
        "GiB.",
        "\n".join(worst(usable)),
    ]
    return "\n\n".join(parts) + "\n"


def plot(rows: list[Row], path: Path) -> bool:
    """Draws estimates over measurements; False if matplotlib isn't installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    axes = (figure := Figure(figsize=(6, 6))).add_subplot()
    for source in _sources(rows):
        group = [row for row in rows if row.source == source]
        measured = [row.measured / GIB for row in group]
        axes.scatter(measured, [row.expected / GIB for row in group], s=12, label=source)
    axes.plot([4, 90], [4, 90], color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured, GiB", ylabel="estimated, GiB")
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    return True


def main() -> None:
    """Writes the page and the plot, and prints the page."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else docs / "measured"
    rows = read_rows()
    text = report(rows)
    if plot([row for row in rows if not row.full], folder / "memory-published.svg"):
        text += "\n![estimates over measurements](memory-published.svg)\n"
    (folder / "memory-published.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
