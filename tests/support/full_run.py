"""A run directory in which every record of ours says all that it can, and wrong types in them."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from safe_launch.evidence.failure_record import FailureRecord, Frame
from safe_launch.hangs.attribution import attributed
from safe_launch.hangs.standing import Child, Collective, Standing
from safe_launch.progress import snapshot
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.report import summary
from safe_launch.report.lasting import Edit
from safe_launch.system import kept_runs, run_directory

from .attempts import Failed, Seen, Succeeded, ran
from .models import GIB, QWEN2_7B, model_of, workload_of
from .worlds import CURRENT, REQUEST, ZERO2

NAME = "train-20261127-010203-abcdef"
WRONG: tuple[object, ...] = (None, True, -1, 0.5, 1e300, "x", "", [], [None], {}, {"x": [{}]})
"""A value of each type, right for no record everywhere."""


def write(root: Path, script: Path) -> Path:
    """Writes a corrected run on a script; returns its folder."""
    run = root / NAME
    run.mkdir(parents=True)
    run_directory.write(run / "request.json", REQUEST.document())
    workload = replace(workload_of(model_of(QWEN2_7B), ZERO2), versions=CURRENT)
    frame = Frame(str(script), 2, "main", "loss.backward()")
    failure = FailureRecord(
        *(0, time.monotonic(), "builtins.RuntimeError", "zero2-gradient-reduced-twice"),
        frames=(frame,),
        traceback="Traceback",
        step=3,
        exit_code=1,
        observed={"zero_stage": 2},
        memory={"allocated": GIB, "total": GIB},
        host="beta",
    )
    times = {"quiet": 0.5, "in_phase": 9.0, "longest_quiet": 0.2, "whole": (0.25, 0.75)}
    done = {"timed": 40, "trained": 80.0, "samples": 90, "tokens": 900}
    row = RankProgress(0, 7, 9, Phase.ENDED, 45, peak=GIB, context=GIB, **times, **done)  # type: ignore[arg-type]
    rows = (row, replace(row, rank=1))
    seen = Seen({"sequence_length": 512}, rows=rows)
    now = time.time()
    with kept_runs.recorded(run, 0, str(script)):
        ended = ran(
            run,
            workload,
            lambda attempt: Failed(attempt, (failure,), seen=replace(seen, span=(now, now + 9))),
            lambda attempt: Succeeded(attempt, seen=replace(seen, span=(now + 9, now + 99))),
        )
    told = summary.document(ended.state.outcomes, ended.end.code)
    edit = Edit(f"{script}:2", "use_reentrant=False", str(script), 2)
    run_directory.write(run / "outcome.json", {**told, "lasting": msgspec.to_builtins([edit])})
    reduce = Collective(412, "all_reduce", ((12480,),), ("Float",), "0 default_pg")
    children = (Child(9, "python", "S", 0.0),)
    stood = Standing(0, frames=(frame,), collectives=(reduce,), children=children, window=2.0)
    hang = attributed([stood, replace(stood, rank=1, collectives=())], quiet=90.0, limit=60.0)
    for folder in run.glob("attempt-*"):
        snapshot.write_pace(folder, [(now + number, number) for number in range(9)])
        snapshot.write(folder, 0, rows)
        run_directory.write(folder / "standings-1.json", msgspec.to_builtins(hang))
    return run


def other_forms(document: Any) -> Iterator[tuple[str, object]]:
    """The document with each of its values as each other type: where and what, and the whole.

    Of a list's elements the first stands for all.
    """
    for path in _paths(document):
        for wrong in WRONG:
            changed = copy.deepcopy(document)
            parent = changed
            for step in path[:-1]:
                parent = parent[step]
            if path:
                parent[path[-1]] = wrong
            else:
                changed = wrong
            yield f"{'.'.join(map(str, path)) or 'all'} = {json.dumps(wrong)}", changed


def _paths(value: Any) -> Iterator[tuple[str | int, ...]]:
    yield ()
    if isinstance(value, dict):
        items: list[tuple[str | int, Any]] = list(value.items())
    else:
        items = list(enumerate(value[:1])) if isinstance(value, list) else []
    for name, each in items:
        yield from ((name, *path) for path in _paths(each))
