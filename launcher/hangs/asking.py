"""Determines the positions of a node's ranks, in parallel and from outside.

Reads /proc twice; queries that cost a process anything come once, at the end. Vendors' tools show
how busy the ranks' devices are.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Generic, TypeVar

from ..core.errors import Refused
from ..evidence.failure_record import Frame
from ..machine.probes import has_nvidia_driver, npu_chips, nvml_text, output_of, visible
from ..progress.board import RankProgress
from . import flight_recorder, proc, stacks
from .proc import is_at_file
from .standing import ENDED_STATES, Child, Standing

ANSWERS = 2.5
"""Timeout in seconds for all answers, after observing the processes."""
EACH = 0.8
"""Timeout in seconds for one answer; a runnable process takes milliseconds."""
MARGIN = 0.3
"""Seconds for querying threads to notice the timeout."""
CHILDREN = 8
"""Maximum child processes per rank whose stacks are read."""
STOPPED = {"T": "the process is stopped (SIGSTOP)", "t": "a debugger holds the process"}
Result = TypeVar("Result")
_USE = re.compile(r"^(\d+)(?:\.\d+)?\s")
"""The first number of a chip's last cell in `npu-smi info`: AICore(%)."""


class _Answer(Generic[Result]):
    """The result of a background thread. Nothing waits for a thread stuck in a read from /proc."""

    def __init__(self, question: Callable[[], Result], otherwise: Result) -> None:
        self._question = question
        self._value = otherwise
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def by(self, end: float) -> Result:
        """The answer, or the fallback after that time of the monotonic clock."""
        self._thread.join(max(0.0, end - monotonic()))
        return self._value

    def _ask(self) -> None:
        with suppress(Exception):  # the process is ending: its other answers matter
            self._value = self._question()


def standings(
    rows: Sequence[RankProgress],
    folder: Path,
    window: float = 2.0,
    look: Callable[[], Sequence[RankProgress]] = tuple,
) -> tuple[Standing, ...]:
    """The positions of this node's ranks; takes `window` plus at most about three seconds.

    A rank that has moved meanwhile isn't queried, as it may be in another call.

    Args:
        rows: the board's rows of the ranks.
        folder: the folder of their sockets.
        window: seconds to observe their processes.
        look: reads the board, which may be closed.
    """
    pids = [row.pid for row in rows]
    use = _Answer[Mapping[int, float]](partial(utilization, pids), {})
    ran = _Answer[Mapping[int, proc.Ran]](partial(_ran, pids), {}).by(monotonic() + EACH)
    before, begun = _trees(pids), monotonic()
    sleep(window)
    now, took = _trees(pids), monotonic() - begun
    end = monotonic() + ANSWERS
    latest = _by_rank(look)
    answers = []
    for row in rows:
        seen = _watched(row, before.get(row.pid, ()), now.get(row.pid, ()), took)
        late = _with_problem(seen, "it couldn't be asked in time")
        question = partial(_query, seen, row.thread, ran.get(row.pid), folder, end)
        if row.quiet >= took > latest.get(row.rank, row).quiet:
            question = partial(_with_problem, seen, "it moves again")
        answers.append(_Answer(question, late))
    result = [answer.by(end + MARGIN) for answer in answers]
    busy = use.by(end)
    return tuple(replace(standing, utilization=busy.get(standing.pid)) for standing in result)


def up_to_date(
    before: Sequence[Standing], look: Callable[[], Sequence[RankProgress]]
) -> tuple[Standing, ...]:
    """The standings with the board's current rows, as ranks may have moved."""
    latest = _by_rank(look)
    return tuple(
        replace(standing, phase=row.phase, step=row.step, quiet=row.quiet)
        if (row := latest.get(standing.rank)) is not None
        else standing
        for standing in before
    )


def _by_rank(look: Callable[[], Sequence[RankProgress]]) -> dict[int, RankProgress]:
    """The rows of the board; empty once closed."""
    with suppress(ValueError):
        return {row.rank: row for row in look()}
    return {}


def _trees(pids: Sequence[int]) -> proc.Trees:
    return _Answer[proc.Trees](partial(proc.trees, pids), {}).by(monotonic() + EACH)


def _ran(pids: Sequence[int]) -> dict[int, proc.Ran]:
    """Running times of the threads of the ranks' processes."""
    result = {}
    for pid in filter(None, pids):
        with suppress(OSError):  # it has ended
            result[pid] = proc.ran(pid)
    return result


def _watched(
    row: RankProgress, before: Sequence[proc.Process], family: Sequence[proc.Process], took: float
) -> Standing:
    """A rank's state from the progress board and /proc."""
    earlier = {process.pid: process for process in before}
    return Standing(
        rank=row.rank,
        pid=row.pid,
        phase=row.phase,
        step=row.step,
        quiet=row.quiet,
        state=family[0].state if family else "",
        cpu=proc.used(family[0], earlier) if family else 0.0,
        io=sum(proc.moved(process, earlier) for process in family),
        window=took,
        children=tuple(
            Child(process.pid, process.name, process.state, proc.used(process, earlier))
            for process in family[1:]
        ),
    )


def _query(seen: Standing, thread: int, ran: proc.Ran | None, folder: Path, end: float) -> Standing:
    """A standing with the process's stacks and collectives."""
    if seen.state in ENDED_STATES:
        why = "its process has ended" if seen.pid else "its process hasn't begun"
        return _with_problem(seen, why)
    pids = (seen.pid, *(child.pid for child in seen.children))
    result = replace(seen, is_at_file=is_at_file(pids))
    if seen.state in STOPPED:
        result = _with_problem(result, f"{flight_recorder.UNKNOWN}: {STOPPED[seen.state]}")
    else:
        collectives = flight_recorder.collectives(folder, seen.rank, EACH)
        if isinstance(collectives, Refused):
            result = _with_problem(result, collectives.sentence)
        else:
            result = replace(result, collectives=collectives)
    frames = _stack(seen.pid, thread, seen.state, end, ran)
    if isinstance(frames, Refused):
        result = _with_problem(result, frames.sentence)
    else:
        result = replace(result, frames=frames, own_files=stacks.user_files(frames))
    children = [
        _with_stack(child, end)
        if place < CHILDREN and stacks.is_same_program(seen.pid, child.pid)
        else child
        for place, child in enumerate(seen.children)
    ]
    return replace(result, children=tuple(children))


def _with_stack(child: Child, end: float) -> Child:
    frames = Refused("") if child.state in ENDED_STATES else _stack(child.pid, 0, child.state, end)
    return child if isinstance(frames, Refused) else replace(child, frames=frames)


def _stack(
    pid: int, thread: int, state: str, end: float, ran: proc.Ran | None = None
) -> tuple[Frame, ...] | Refused:
    """A process's stack, from its handler, or from py-spy without a usable handler."""
    if state in STOPPED:
        written: tuple[Frame, ...] | Refused = Refused(f"{stacks.UNKNOWN}: {STOPPED[state]}")
    else:
        written = stacks.from_handler(pid, thread, min(EACH, end - monotonic()), ran)
    if not isinstance(written, Refused):
        return written
    read = stacks.from_py_spy(pid, min(EACH, end - monotonic()))
    if isinstance(read, Refused):
        return Refused(f"{written.sentence}; {read.sentence}")
    return read


def _with_problem(standing: Standing, sentence: str) -> Standing:
    known = f"{standing.problem}; " if standing.problem else ""
    return replace(standing, problem=known + sentence)


def utilization(pids: Sequence[int]) -> Mapping[int, float]:
    """Utilization of each rank's device, from 0 to 1, by process id, with ids in rank order."""
    with suppress(Exception):  # a driver in trouble may raise anything
        return _nvidia(pids) or _ascend(pids)
    return {}


def _nvidia(pids: Sequence[int]) -> dict[int, float]:
    """Utilization from NVML's list of processes, which may be empty in a container."""
    if not has_nvidia_driver():
        return {}
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        users = {
            process.pid: handle
            for handle in handles
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        matches = {pid: users[pid] for pid in pids if pid in users}
        uuids = [nvml_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        shown = visible(handles, os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
        chosen = matches or _in_order(pids, shown)
        return {
            pid: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            for pid, handle in chosen.items()
        }
    finally:
        pynvml.nvmlShutdown()


def _ascend(pids: Sequence[int]) -> dict[int, float]:
    uses = list(of_npu_smi(output_of(("npu-smi", "info")) or ""))
    return _in_order(pids, visible(uses, os.environ.get("ASCEND_RT_VISIBLE_DEVICES")))


def of_npu_smi(table: str) -> Iterator[float]:
    """Utilization of each chip in the table of `npu-smi info`, from 0 to 1."""
    matches = (_USE.match(use) for _, use in npu_chips(table))
    yield from (int(match[1]) / 100 for match in matches if match)


def _in_order(pids: Sequence[int], devices: Sequence[Any]) -> dict[int, Any]:
    """Assigns devices to ranks in order, if there is one per rank."""
    return dict(zip(pids, devices, strict=True)) if len(pids) == len(devices) else {}
