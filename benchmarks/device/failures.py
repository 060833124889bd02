"""The original failures of safe-launch: each fails plainly, and trains corrected.

The reference is the same training in a single process on the device. With a single device there is
one rank, on which these failures occur as well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from safe_launch.core.quantities import count_of

from .bench import Bench, Figure, last_line

if TYPE_CHECKING:
    from support.trainings import Case

TITLE = "Failures, corrected"
NEEDS = ("torch", "pytest")
MORE = {"ds": ("deepspeed",), "hf": ("deepspeed", "transformers", "peft", "accelerate"), "ddp": ()}
"""A scenario's further packages, by the beginning of its name."""
SECONDS = 220
LAUNCH = 60
"""Seconds for one launch: a failed process may hang at its end."""
CLOSE = 1e-4
"""Relative difference up to which losses count as equal."""


def run(bench: Bench) -> Iterator[Figure]:
    """A figure for each case; several in parallel if there are cores."""
    from support.trainings import CASES, FIRST_FIVE

    wanted = FIRST_FIVE[-1:] if bench.tiny else FIRST_FIVE
    cases = [on_device(case, bench) for case in CASES if case.name in wanted]
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 4)) as pool:
        for done in as_completed([pool.submit(tried, bench, case) for case in cases]):
            yield done.result()


def on_device(case: Case, bench: Bench) -> Case:
    """The case on the available device, with the same global batch."""

    def fitting(arguments: tuple[str, ...]) -> tuple[str, ...]:
        batch = {"--per_device_train_batch_size=4": f"--per_device_train_batch_size={8 // ranks}"}
        return tuple(batch.get(one, one) for one in arguments if one != "--use_cpu")

    ranks = bench.ranks
    return replace(case, arguments=fitting(case.arguments), reference=fitting(case.reference))


def tried(bench: Bench, case: Case) -> Figure:
    """The figure of a case; an error stops no other case."""
    try:
        return figure_of(bench, case)
    except Exception as error:
        return Figure(case.name, f"failed: {error}", wrong=True)


def figure_of(bench: Bench, case: Case) -> Figure:
    """A case's plain failure and its correction."""
    what = f"{case.name}, {bench.ranks_told}"
    needed = MORE[case.script.name.partition("_")[0]]
    if absent := [name for name in needed if find_spec(name) is None]:
        return Figure(what, f"not run: not installed: {', '.join(absent)}")
    folder = bench.folder / case.id
    folder.mkdir()
    variables = {}
    if "current" not in case.fails_on:
        from support.stacks import RELEASING

        if not RELEASING.packages[0].exists():
            return Figure(what, "not run: it needs DeepSpeed 0.19.2", "scripts/environment current")
        own = [*map(str, RELEASING.packages), os.environ.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = ":".join(filter(None, own))
    plain = bench.run(
        *("torchrun", "--standalone", f"--nproc-per-node={bench.ranks}"),
        *(case.script, *case.arguments),
        folder=folder,
        seconds=limit(bench),
        **variables,
    )
    dies = plain.returncode != 0 and re.search(case.dies, plain.stderr, re.DOTALL)
    expected = losses(bench, folder, "python", case.script, *case.reference)
    ours = ("safe-launch", f"--nproc={bench.ranks}", "--log-dir=runs", case.script)
    found = losses(bench, folder, *ours, *case.arguments, **variables)
    told = (folder / "said").read_text()
    attempts = len(re.findall(r"^\[safe-launch\] attempt \d+: ", told, re.MULTILINE))
    off = max(abs(one / other - 1) for one, other in zip(found, expected, strict=True))
    return Figure(
        what,
        f"{'corrected' if case.change in told else 'not corrected'} in "
        f"{count_of(attempts, 'attempt')}, losses within {off:.1e} of the reference's",
        f"plainly it {'dies as known' if dies else 'does not: ' + last_line(plain.stderr)}; on a "
        "CPU: corrected in at most 2, within 1e-4",
        wrong=not dies or case.change not in told or attempts > 2 or off > CLOSE,
        raw={"losses": found, "reference": expected},
    )


def limit(bench: Bench) -> float | None:
    """Seconds for a launch; a dry run's machine is busy."""
    return None if bench.tiny else LAUNCH


def losses(bench: Bench, folder: Path, *command: object, **variables: str) -> list[float]:
    """The losses of a successful training; `said` then has its stderr.

    Raises:
        RuntimeError: it failed.
    """
    target = folder / "losses.json"
    target.unlink(missing_ok=True)
    command = (*command, f"--loss_file={target}")
    done = bench.run(*command, folder=folder, seconds=limit(bench), **variables)
    (folder / "said").write_text(done.stderr)
    if done.returncode or not target.exists():
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-1500:]}")
    found: list[float] = json.loads(target.read_text())
    return found
