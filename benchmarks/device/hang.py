"""A rank that never enters a collective on the device is named, with its line.

Two ranks: each on its own device, or both on the only one. Time sharing is enough for that, so no
MPS is started. As NCCL may refuse, gloo also reduces the same tensors on that one device.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .bench import Bench, Figure

TITLE = "Hangs"
NEEDS = ("torch", "pytest")
SECONDS = 75


def run(bench: Bench) -> Iterator[Figure]:
    """The vendor's backend; also gloo with GPU tensors, if two ranks share one."""
    shared = bench.count < 2
    yield figure_of(bench, "NCCL" if bench.kind == "cuda" else "HCCL", (), shared=shared)
    if shared and bench.kind == "cuda":
        yield figure_of(bench, "gloo", ("gloo",), shared=shared)


def figure_of(bench: Bench, backend: str, arguments: tuple[str, ...], *, shared: bool) -> Figure:
    """The figure of one launch."""
    from support.hangs import Case, ended, line_of
    from support.stacks import Stack

    stack = Stack("device", bench.bin, Path("unused"), accelerator=bench.kind)
    # A device's first collective takes seconds, which isn't a hang.
    case = Case("device.py", ("stuck", *arguments), options=("--hang-report=15",), stack=stack)
    result = ended(case, bench.folder / backend)
    what = f"rank 1 sleeps in a step, two ranks over {backend}" + ", one device" * shared
    beside = "on a CPU the rank is right in 208 of 210 (docs/measured/hangs.md)"
    if not result.reports and shared and backend == "NCCL" and "NCCL error" in result.output:
        cause = next(line for line in result.output.splitlines() if "NCCL error" in line)
        return Figure(what, f"skipped: NCCL refuses two ranks on one device: {cause}", beside)
    if not result.reports:
        return Figure(what, f"no report: {result.output[-1000:]}", beside, wrong=True)
    blamed = result.blamed()
    right = blamed == {1: line_of("device.py", "stuck: device")}
    named = ", ".join(f"rank {rank} at {line}" for rank, line in blamed.items()) or "nobody"
    collective = result.reports[0]["collective"]
    inside = "what isn't recorded" if collective is None else collective["kind"]
    told = f"named: {named}; the others wait in {inside}"
    raw = {"report": result.reports[0], "output": result.output[-4000:]}
    return Figure(what, told, beside, wrong=not right, raw={} if right else raw)
