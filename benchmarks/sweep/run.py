"""Runs the cells of the importable versions and appends each result to a file."""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import re
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from .cells import ENGINES, Cell, cell_of, cells
from .data import Measured, document, numbers, read
from .page import page
from .pair import LIMIT, Pair
from .truth import truth_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "sweep"

PLAIN = [cell for library in ENGINES for cell in cells(library) if cell.checkpointing == "off"]
"""Cells that raise nothing."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/sweep", description=__doc__)
    parser.add_argument("library", nargs="?", choices=tuple(ENGINES))
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--only", default="", help="cells whose key has this pattern")
    parser.add_argument("--cells", nargs="*", help="the keys of the cells to run")
    parser.add_argument(
        "--differing",
        action="store_true",
        help="cells on which the nearest measured versions disagree: with each version halfway "
        "between two of them, this finds since when",
    )
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for a cell")
    parser.add_argument("--page", action="store_true", help="make the page and presets/sweep.json")
    options = parser.parse_args(arguments)
    if options.page:
        write(options.results)
    if options.library is None:
        return
    names = ["torch", "deepspeed"] if options.library == "deepspeed" else ["torch"]
    versions = {name: version(name).partition("+")[0] for name in names}
    told = "-".join(f"{name}-{versions[name]}" for name in reversed(names))
    chosen = map(cell_of, options.cells) if options.cells else cells(options.library)
    asked = [cell for cell in chosen if re.search(options.only, str(cell))]
    if options.differing:
        measured = read(options.results, options.library)
        asked = [cell for cell in asked if differs(str(cell), versions[options.library], measured)]
    with_deepspeed = options.library == "deepspeed"
    new_pair = functools.partial(Pair, deepspeed=with_deepspeed, limit=options.limit)
    run(asked, options.results / f"{told}.jsonl", new_pair, deepspeed=with_deepspeed)


def differs(key: str, installed: str, measured: Sequence[Measured]) -> bool:
    """Whether the nearest versions below and above that have a cell disagree on it."""
    known = {numbers(one.version): one.results[key] for one in measured if key in one.results}
    below = max((each for each in known if each < numbers(installed)), default=None)
    above = min((each for each in known if each > numbers(installed)), default=None)
    if below is None or above is None or numbers(installed) in known:
        return False
    return known[below]["outcome"] != known[above]["outcome"]


def write(results: Path) -> None:
    """Writes the document for planning, and the page."""
    every = {library: read(results, library) for library in ENGINES}
    text = json.dumps(document(every), indent=0)
    (ROOT / "presets" / "sweep.json").write_text(text + "\n")
    (ROOT / "docs" / "measured" / "sweep.md").write_text(page(every))


def run(
    asked: Sequence[Cell], path: Path, new_pair: Callable[[], Pair], *, deepspeed: bool
) -> None:
    """Runs the cells that the file lacks.

    After any result but an equal one a new pair follows. Cells that aren't equal run a second time
    in a new pair, unless they raise in one; the second result counts, and a first one that it
    doesn't repeat is kept as `once`.
    """
    import torch

    torch.set_num_threads(1)
    if deepspeed:
        importlib.import_module("deepspeed")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text().splitlines() if path.exists() else []
    known = {json.loads(line)["cell"] for line in lines}
    rest = [cell for cell in asked if str(cell) not in known]
    if not rest:
        return
    _prepare(rest, new_pair(), deepspeed=deepspeed)
    pair: Pair | None = None
    with path.open("a") as file:
        for cell in rest:
            is_fresh = pair is None
            pair = pair or new_pair()
            result = first = pair.run(cell)
            if not (first["outcome"] == "equal" or (is_fresh and first["outcome"] == "raises")):
                pair.end()
                pair = new_pair()
                result = pair.run(cell)
                if result["outcome"] == "equal":
                    result["once"] = first
            if result["outcome"] != "equal":
                pair.end()
                pair = None
            file.write(json.dumps({"cell": str(cell), **result}) + "\n")
            file.flush()
    if pair is not None:
        pair.end()


def _prepare(rest: Sequence[Cell], first: Pair, *, deepspeed: bool) -> None:
    """Does the common work of all pairs before any fork: imports, and the right trainings."""
    for cell in {cell.engine: cell for cell in reversed(PLAIN)}.values():
        if deepspeed == cell.engine.startswith("zero"):
            first.run(cell)
    with contextlib.suppress(EOFError, OSError):
        for name in first.modules():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    first.end()
    for cell in rest:
        truth_of(cell)
    gc.freeze()  # DeepSpeed collects garbage in every cell: 0.35 s without this


if __name__ == "__main__":
    main()
