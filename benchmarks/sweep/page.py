"""The page of the sweep: versions across, cells down, and numbers below each table."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping, Sequence

from .cells import CHECKPOINTINGS, ENGINES, OFFLOADS, PRECISIONS, cell_of
from .data import LETTERS, Measured, pattern, reason

HEAD = """\
# Every setting that a plan may choose, against one process

`scripts/sweep` trains small models on two ranks for three steps: blocks that run once or twice,
adapters, a frozen block, tied weights, in every combination of engine, offload, accumulation (1
and 3), precision, checkpointing and clipping, with the libraries' own interfaces and no launcher.
It compares the gradient that reaches the optimizer, and the weights after each step, with one
process that sees the global batch at once in double precision. How far a right result may be off
follows from the types and the number of additions: [the derivation]({tolerance}).

`=` is equal, **`x`** trains otherwise without an error, `!` raises, hangs or dies, an empty field
wasn't measured. A field has the worst of its models, accumulations and clippings; the numbers are
below each table. Clipping hides a gradient that is wrong by little more than a factor: in half
precision some clipped cells count as equal that are wrong without it. Everything ran on a CPU: that
speaks for CPUs, and for what doesn't depend on streams. DeepSpeed's question whether this CPU
computes in fp16 was answered with yes, and its weights were gathered without autograd, as NCCL does
it (0.18.7 to 0.18.9 raise over gloo otherwise). FSDP 2's means were computed by a division, as
torch 2.7 and 2.8 give the sum for them over gloo ([on CPUs that is what they train
with](../../presets/failures/fsdp2-sums-over-gloo.md)). DeepSpeed 0.14.0 isn't here: on a CPU it
wants Intel's extensions, and 0.14.1 is the first that doesn't.

Whole are the first and the last patch of each minor version of DeepSpeed, and each minor of torch.
Of the patches between, only those cells were measured on which the versions around them disagree:
that shows since when.

A result other than `=` counts if a second pair of processes repeats it. What was not repeated:
with parameters in host memory, stage 3 of DeepSpeed 0.15.0 and 0.19.0 in about one of a hundred
runs returned values that aren't the weight's from a `GatheredParameters` right after a step; the
next gather returned the weight, and the training went on as it should.

How plans use it: no change leads into a cell that is wrong. A version that isn't here counts as
the nearest lower patch of its minor version, or as the versions around it if they agree, and the
plan has a line on it. For any other version a plan keeps what was asked for until something fails.

{counts}

`scripts/sweep --page` makes this page and `presets/sweep.json`, which plans read, of
`benchmarks/results/sweep/`.
"""
TOLERANCE = "../../benchmarks/sweep/tolerance.py"
WORST = ("equal", "raises", "dies", "hangs", "wrong")
"""The outcomes, the worst last."""


def page(every: Mapping[str, Sequence[Measured]]) -> str:
    """The page in Markdown."""
    parts = [HEAD.format(tolerance=TOLERANCE, counts=counts(every))]
    for library, measured in every.items():
        if measured:
            parts += [_part(engine, offload, measured) for engine, offload in _pairs(library)]
    return "\n".join(parts)


def counts(every: Mapping[str, Sequence[Measured]]) -> str:
    """The number of measurements, by library and version."""
    rows = ["| | torch | models | cells | equal | wrong | doesn't run |", "|---" * 7 + "|"]
    for library, measured in every.items():
        for one in measured:
            letters = [LETTERS[result["outcome"]] for result in one.results.values()]
            numbers = [len(letters), *(letters.count(letter) for letter in "=x!")]
            told = " | ".join(map(str, numbers))
            models = ", ".join(dict.fromkeys(cell_of(key).model for key in one.results))
            rows.append(f"| {library} {one.version} | {one.torch} | {models} | {told} |")
    return "\n".join(rows)


def _pairs(library: str) -> Iterator[tuple[str, str]]:
    for engine in ENGINES[library]:
        for offload in OFFLOADS[engine]:
            yield engine, offload


def _part(engine: str, offload: str, measured: Sequence[Measured]) -> str:
    """The table of an engine and its offloading, and its numbers."""
    title = engine if offload == "none" else f"{engine}, offload {offload}"
    measured = [one for one in measured if any(_is_of(key, engine, offload) for key in one.results)]
    lines = [f"## {title}", "", "| | " + " | ".join(one.version for one in measured) + " |"]
    lines.append("|---|" + "---|" * len(measured))
    for precision, checkpointing in itertools.product(PRECISIONS, CHECKPOINTINGS):
        fields = [_field(one, engine, offload, precision, checkpointing) for one in measured]
        lines.append(f"| {precision}, checkpointing {checkpointing} | {' | '.join(fields)} |")
    found: dict[str, dict[str, list[str]]] = {}
    for one in measured:
        for key, result in one.results.items():
            if _is_of(key, engine, offload) and result["outcome"] != "equal":
                found.setdefault(reason(result), {}).setdefault(one.version, []).append(key)
    if found:
        lines += ["", "<details><summary>Numbers</summary>", "<ul>"]
        lines += [_row(why, versions) for why, versions in sorted(found.items())]
        lines += ["</ul>", "</details>"]
    return "\n".join([*lines, ""])


def _is_of(key: str, engine: str, offload: str) -> bool:
    return key.startswith(f"{engine}/{offload}/")


def _row(why: str, versions: Mapping[str, Sequence[str]]) -> str:
    """One line of numbers: the cells, and the error."""
    cells = pattern(key for keys in versions.values() for key in keys)
    return f"<li>{', '.join(versions)}: {html.escape(cells)}: {html.escape(why)}</li>"


def _field(one: Measured, engine: str, offload: str, precision: str, checkpointing: str) -> str:
    wanted = (engine, offload, precision, checkpointing)
    outcomes = []
    for key, result in one.results.items():
        cell = cell_of(key)
        if (cell.engine, cell.offload, cell.precision, cell.checkpointing) == wanted:
            outcomes.append(result["outcome"])
    if not outcomes:
        return " "
    letter = LETTERS[max(outcomes, key=WORST.index)]
    return "**`x`**" if letter == "x" else f"`{letter}`"
