"""Trains cells known to be right under safe-launch: no check may find a fault.

    safe-launch --fix suggest --nproc 2 -m benchmarks.sweep.watched LIBRARY VERSIONS ENGINE [NTH]

VERSIONS is a file of `benchmarks/results/sweep` without its suffix, ENGINE one of its cells', as
`zero2` or `fsdp2`; with NTH only every NTH cell is run. Each is compared with the right training
again, as guards watch it now. A cell that isn't equal any more is printed. Cells that clipping or
half precision makes look equal (docs/measured/sweep.md) are left out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch
from torch import distributed

from .cells import cell_of
from .judged import judge
from .pair import prepare_deepspeed
from .run import RESULTS


def main(library: str, versions: str, engine: str, nth: str = "1") -> None:
    """Runs the cells of an engine in turn."""
    lines = map(json.loads, (RESULTS / f"{versions}.jsonl").read_text().splitlines())
    outcomes = {line["cell"]: line["outcome"] for line in lines}
    right = [key for key in outcomes if outcomes[key] == outcomes[_sharpest(key)] == "equal"]
    keys = [key for key in right if key.startswith(f"{engine}/")][:: int(nth)]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    if library == "deepspeed":
        prepare_deepspeed()
    rank = distributed.get_rank()
    for key in keys:
        result = judge(cell_of(key), rank)
        if result["outcome"] != "equal":
            print(f"rank {rank}: {key}: {result}", flush=True)
    if rank == 0:
        print(f"{len(keys)} cells", flush=True)
    distributed.destroy_process_group()


def _sharpest(key: str) -> str:
    """The cell without clipping in fp32, whose bound is the narrowest."""
    return str(replace(cell_of(key), precision="fp32", clipping="unclipped"))


if __name__ == "__main__":
    main(*sys.argv[1:])
