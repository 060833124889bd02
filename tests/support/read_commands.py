"""What the readers find in real command lines, beside what a person has read in their sources.

    scripts/read-commands FILE REPOSITORIES [--differences]

FILE has a JSON object a line: `repo`, `cwd` in it, `script`, `args`, `env`, the launcher's
`options`, and `checked_by_hand` where somebody has: S stage, B micro batch, A accumulation, L
tokens, R and T rank and targets of LoRA, C checkpointing, P precision, O optimizer. REPOSITORIES
holds the sources as OWNER/NAME.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from safe_launch.core.errors import LaunchError
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting
from safe_launch.core.workload import Workload
from safe_launch.workload.config_files import accelerate
from safe_launch.workload.read_workload import read_workload

CHECKED: Mapping[str, Name] = {
    "S": Setting.ZERO_STAGE,
    "B": Setting.MICRO_BATCH,
    "A": Setting.ACCUMULATION,
    "L": Fact.SEQUENCE_LENGTH,
    "R": Fact.LORA_RANK,
    "T": Fact.LORA_TARGETS,
    "C": Setting.GRADIENT_CHECKPOINTING,
    "P": Setting.PRECISION,
    "O": Fact.OPTIMIZER,
}
ALL_LINEAR = ("all", "all-linear")
"""Words for all linear layers: LLaMA-Factory's and peft's."""


def workload_of(row: Mapping[str, Any], repositories: Path) -> Workload:
    """What the readers find for a command line.

    Raises:
        LaunchError: they refuse it.
    """
    os.chdir(repositories / row["repo"] / row["cwd"])
    words = [word for option in row["options"] for word in str(option).split("=", 1)]
    numbers = [
        words[place + 1]
        for place, word in enumerate(words[:-1])
        if re.fullmatch(r"--(nproc|nproc_per_node|num_gpus|num_processes)", word)
    ]
    nproc = int(numbers[0]) if numbers and numbers[0].isdecimal() else 8
    environment = {**os.environ, **row["env"]}
    if "--accelerate-config" in words:
        file = Path(words[words.index("--accelerate-config") + 1])
        environment |= accelerate.variables(file)
    request = LaunchRequest(row["script"], "-m" in words, tuple(row["args"]), nproc, "the options")
    with mock.patch.dict(os.environ, environment, clear=True):
        return read_workload(request)


def verdict(key: str, checked: str, read: object) -> str:
    """Whether what was read is `right`, `unknown` or `wrong`."""
    if read is None:
        return "unknown"
    return "right" if _is_same(key, checked, str(read)) else "wrong"


def _is_same(key: str, checked: str, read: str) -> bool:
    if key == "L":
        terms = (
            re.sub(r"[a-z ]+(?=\+)", "", checked).replace("x", "*").rstrip("abcdeghijklmnopqrst ")
        )
        return int(read) == eval(terms, {"__builtins__": {}})
    if key == "T":
        if checked.endswith("names"):
            return len(read.split(",")) == int(checked.split()[0])
        wanted = set(re.split("[, ]", checked))
        found = {name.removesuffix("_proj") for name in read.split(",")}
        return found == wanted or (read == "all-linear" and checked in ALL_LINEAR)
    return re.match(rf"{re.escape(read)}\b|\S*/{re.escape(read)}\b", checked) is not None


def lines(workload: Workload) -> Iterator[str]:
    """All that was read of one command line, each value with its origin."""
    for name, known in sorted(workload.known.items(), key=lambda item: str(item[0])):
        yield f"{name.value} = {known.value} [{known.origin.name}: {known.source}]"
    yield from (f"note: {note}" for note in workload.notes)
    if workload.not_understood:
        yield f"not understood: {' '.join(workload.not_understood)}"


def main() -> None:
    """Prints each line, and how many of the checked values are right, unknown and wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("repositories", type=Path)
    parser.add_argument("--differences", action="store_true", help="only what isn't right")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    folder = options.repositories.absolute()
    for text in options.file.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        title = f"{row['id']} {row['repo']} {row['path']}"
        try:
            workload = workload_of(row, folder)
        except LaunchError as error:
            counts["refused"] += 1
            print(f"{title}: refused: {error}")
            continue
        counts["read"] += 1
        counts.update(f"of origin {known.origin.name}" for known in workload.known.values())
        if not options.differences:
            print(title, *lines(workload), sep="\n  ")
        for key, name in CHECKED.items():
            checked = row.get("checked_by_hand", {}).get(key)
            if checked is not None:
                read = workload.value(name)
                word = verdict(key, str(checked), read)
                counts[word] += 1
                if word != "right":
                    print(f"{title}: {name.value}: {word}: read {read}, by hand {checked}")
    print(*(f"{count} {word}" for word, count in sorted(counts.items())), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
