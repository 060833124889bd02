"""Small worlds of ranks that run the same program of collectives until one of them fails to.

Each rank is a list of operations. A rank enters the next once it has finished those before it, or,
with a device, once no more than `ahead` are unfinished; a collective is finished once all ranks of
its group have entered it as the same number with the same contents. What then stands still is given
to the attribution as `Standing` values.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from safe_launch.evidence.failure_record import Frame
from safe_launch.hangs.report import HangKind
from safe_launch.hangs.standing import Child, Collective, Standing
from safe_launch.progress.board import Phase

SOURCE = """\
def collate(items):
    return stack(items)


def evaluate(model):
    for batch in held_out:
        score = model(batch)
        dist.all_gather(scores, score)


def main():
    dist.barrier()
    for epoch in range(2):
        for batch in loader:
            loss = model(batch)
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss)
            if rank == 0:
                save(model)
            work.extra()
        evaluate(model)
    dist.barrier()


main()
"""
"""The program's text; the lines below are those of its calls."""
MAIN = 26
PLACES = {
    "first barrier": 12,
    "next batch": 14,
    "forward": 15,
    "backward": 16,
    "step": 17,
    "loss": 18,
    "save": 20,
    "extra": 21,
    "evaluate": 22,
    "last barrier": 23,
}
TORCH = "/site/torch/"
C10D = TORCH + "distributed/distributed_c10d.py"
BELOW = {
    "first barrier": [Frame(C10D, 5200, "barrier", "work.wait()")],
    "forward": [Frame(C10D, 3000, "all_reduce", "work.wait()")],
    "backward": [
        Frame(TORCH + "_tensor.py", 623, "backward", "torch.autograd.backward("),
        Frame(TORCH + "autograd/graph.py", 979, "_engine_run_backward", "return engine("),
    ],
    "loss": [Frame(C10D, 3000, "all_reduce", "work.wait()")],
    "extra": [Frame(C10D, 2800, "broadcast", "work.wait()")],
    "evaluate": [Frame(C10D, 3900, "all_gather", "work.wait()")],
    "last barrier": [Frame(C10D, 5200, "barrier", "work.wait()")],
}
"""What is below the program's line while a rank waits there."""
STUCK = {
    "collate": [
        Frame(TORCH + "utils/data/dataloader.py", 734, "__next__", "data = self._next_data()"),
        Frame("SCRIPT", 2, "collate", "return stack(items)"),
    ],
    "loader": [
        Frame(TORCH + "utils/data/dataloader.py", 734, "__next__", "data = self._next_data()"),
        Frame(TORCH + "utils/data/dataloader.py", 1454, "_get_data", "self._try_get_data()"),
        Frame(TORCH + "utils/data/dataloader.py", 1291, "_try_get_data", "data = queue.get("),
        Frame("/usr/lib/python3.11/multiprocessing/queues.py", 113, "get", "self._poll(timeout)"),
    ],
    "person": [Frame("/usr/lib/python3.11/pdb.py", 400, "_cmdloop", "self.cmdloop()")],
}


@dataclass(frozen=True)
class Op:
    """An operation of a rank's program: a collective, at a place of the program."""

    place: str
    group: str = "0 default_pg"
    kind: str = "all_reduce"
    shape: tuple[int, ...] = (4,)


@dataclass(frozen=True)
class Fault:
    """What must be said of a world: these ranks and no others, and one of these kinds."""

    ranks: frozenset[int]
    kinds: frozenset[HangKind]


@dataclass(frozen=True)
class World:
    """A world that stands still.

    Attributes:
        standings: where the ranks stand.
        fault: what went wrong.
    """

    standings: tuple[Standing, ...]
    fault: Fault


def groups_of(size: int, parallel: int) -> dict[str, tuple[int, ...]]:
    """The process groups: all ranks, and with tensor parallelism rows and columns of them."""
    groups = {"0 default_pg": tuple(range(size))}
    if parallel > 1:
        for row in range(size // parallel):
            groups[f"{row + 1} tensor"] = tuple(range(row * parallel, (row + 1) * parallel))
        for column in range(parallel):
            groups[f"{column + 10} data"] = tuple(range(column, size, parallel))
    return groups


def program(rank: int, parallel: int, steps: int) -> list[Op]:
    """The program of a rank: a barrier, epochs of steps with an evaluation each, a barrier."""
    data, tensor = "0 default_pg", ""
    if parallel > 1:
        tensor, data = f"{rank // parallel + 1} tensor", f"{rank % parallel + 10} data"
    ops = [Op("first barrier", kind="barrier", shape=())]
    for _ in range(2):
        for _ in range(steps):
            if tensor:
                ops += [Op("forward", tensor, shape=(8, 16))] * 2
            ops += [Op("backward", data, shape=(12480,)), Op("backward", data, shape=(300,))]
            ops.append(Op("loss", shape=(1,)))
        ops += [Op("evaluate", kind="all_gather", shape=(3,))] * 2
    return [*ops, Op("last barrier", kind="barrier", shape=())]


def stack(script: Path, place: str, below: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack of a rank that stands below a line of the program."""
    lines = SOURCE.splitlines()
    path = str(script)
    own = [(MAIN, "<module>"), (PLACES[place], "main")]
    if place == "evaluate":
        own.append((8, "evaluate"))
    frames = [Frame(path, line, name, lines[line - 1].strip()) for line, name in own]
    below = [replace(one, file=path) if one.file == "SCRIPT" else one for one in below]
    return (*frames, *below)


@dataclass
class _Rank:
    """A rank while the world runs."""

    ops: list[Op]
    stop: int
    entered: list[Collective]
    pending: list[int]


def run(
    programs: Sequence[list[Op]],
    groups: dict[str, tuple[int, ...]],
    stops: dict[int, int],
    ahead: int,
    broken: int | None,
) -> list[_Rank]:
    """Runs the programs until nothing moves any more.

    Args:
        programs: of each rank.
        groups: the ranks of each group.
        stops: before which operation a rank stops, by rank.
        ahead: how many operations a rank enters before it waits for the first of them.
        broken: which operation of rank 0 never ends, as when the network fails.
    """
    ranks = [
        _Rank(list(ops), stops.get(number, len(ops)), [], []) for number, ops in enumerate(programs)
    ]
    failed = None
    if broken is not None:
        group = programs[0][broken].group
        failed = group, sum(op.group == group for op in programs[0][: broken + 1])
    moved = True
    while moved:
        moved = False
        for rank in ranks:
            if len(rank.entered) < rank.stop and len(rank.pending) < ahead:
                op = rank.ops[len(rank.entered)]
                count = 1 + sum(one.group == op.group for one in rank.entered)
                rank.pending.append(len(rank.entered))
                rank.entered.append(Collective(count, op.kind, (op.shape,), ("Float",), op.group))
                moved = True
            for index in rank.pending[:1]:
                entry = rank.entered[index]
                others = (ranks[other] for other in groups[entry.group])
                if _key(entry) != failed and all(_has_entered(other, entry) for other in others):
                    rank.entered[index] = replace(entry, is_retired=True)
                    rank.pending.remove(index)
                    moved = True
    return ranks


def _key(entry: Collective) -> tuple[str, int]:
    return entry.group, entry.number


def _has_entered(rank: _Rank, entry: Collective) -> bool:
    return any(
        (one.group, one.number, one.kind, one.shapes)
        == (entry.group, entry.number, entry.kind, entry.shapes)
        for one in rank.entered
    )


FAULTS = (
    *("asleep", "collate", "loader", "busy", "person", "stopped", "traced", "gone"),
    *("skips", "extra", "other shape", "out of data", "ended", "network"),
)


def world(seed: int, script: Path, fault: str) -> World:
    """A random world with a fault.

    Args:
        seed: of the random numbers.
        script: the file with `SOURCE`.
        fault: one of `FAULTS`.
    """
    draw = random.Random(f"{seed} {fault}")
    parallel = draw.choice([1, 1, 2])
    size = parallel * draw.choice([2, 3, 4, 8])
    ahead = draw.choice([1, 1, 1, 3])
    has_device = ahead > 1 or draw.random() < 0.3
    groups = groups_of(size, parallel)
    steps = draw.choice([2, 4])
    programs = [program(rank, parallel, steps) for rank in range(size)]
    bad = draw.randrange(size)
    at = draw.randrange(1, len(programs[bad]) - 1)
    stops: dict[int, int] = {}
    broken = None
    kinds = {HangKind.ABSENT}
    ranks = {bad}
    ops = programs[bad]
    if fault in ("asleep", "collate", "loader", "busy", "person", "stopped", "traced", "gone"):
        stops[bad] = at
        kinds = {
            "loader": {HangKind.LOADER},
            "busy": {HangKind.BUSY},
            "stopped": {HangKind.STOPPED},
            "traced": {HangKind.STOPPED},
            "gone": {HangKind.GONE},
        }.get(fault, kinds)
    elif fault == "skips":
        del ops[at]
        kinds = {HangKind.DIVERGENT, HangKind.ENDED, HangKind.ABSENT}
    elif fault == "extra":
        ops.insert(at, Op("extra", kind="broadcast", shape=(2,)))
        kinds = {HangKind.DIVERGENT}
    elif fault == "other shape":
        ops[at] = replace(ops[at], shape=(77,), kind="all_reduce")
        kinds = {HangKind.DIVERGENT}
    elif fault in ("out of data", "ended"):
        first = next(i for i, op in enumerate(ops) if op.place == "evaluate")
        rest = [ops[-1]] if fault == "out of data" else []
        ends = [i + 1 for i, op in enumerate(ops[: first - 1]) if op.place == "loss"]
        programs[bad] = [*ops[: draw.choice(ends)], *rest]
        kinds = {HangKind.ENDED}
    elif fault == "network":
        broken = draw.randrange(1, len(programs[0]))
        ranks, kinds = set(), {HangKind.UNKNOWN}
    state = run(programs, groups, stops, ahead, broken)
    knows = draw.random() < 0.7
    ring = draw.choice([10_000, 10_000, 6])
    standings = []
    for rank, one in enumerate(state):
        place = _place(one, stopped=stops.get(rank) == len(one.entered))
        standing = Standing(
            rank,
            pid=100 + rank,
            phase=Phase.TRAINING,
            step=3,
            quiet=60.0,
            window=2.0,
            cpu=2.0 if has_device and place is not None else draw.choice([0.0, 0.01]),
            frames=_frames(script, one, place),
            own_files=(str(script),),
            collectives=tuple(
                replace(entry, ranks=groups[entry.group] if knows else ())
                for entry in one.entered[-ring:]
            ),
            utilization=1.0 if has_device else None,
        )
        if rank == bad and fault != "network":
            standing = _faulty(standing, fault, script)
        standings.append(standing)
    return World(tuple(standings), Fault(frozenset(ranks), frozenset(kinds)))


def _place(rank: _Rank, *, stopped: bool) -> str | None:
    """Where a rank waits; None where it has stopped or ended."""
    if stopped or not rank.pending:
        return None
    return rank.ops[rank.pending[0]].place


def _frames(script: Path, rank: _Rank, place: str | None) -> tuple[Frame, ...]:
    if place is not None:
        return stack(script, place, BELOW[place])
    if len(rank.entered) >= len(rank.ops):
        return ()
    place = rank.ops[len(rank.entered)].place
    return stack(script, place, ())


def _faulty(one: Standing, fault: str, script: Path) -> Standing:
    """A rank with its fault: what it looks like from outside."""
    if fault in ("collate", "loader", "person"):
        children = (Child(7, "python", "S", 0.0),) if fault == "loader" else ()
        frames = stack(script, "next batch", STUCK[fault])
        return replace(one, frames=frames, children=children, cpu=0.0)
    if fault == "asleep":
        return replace(one, frames=stack(script, "next batch", ()), cpu=0.0)
    if fault == "busy":
        return replace(one, frames=stack(script, "save", ()), cpu=0.4, io=1 << 20)
    if fault == "stopped":
        return replace(
            one, state="T", cpu=0.0, collectives=None, frames=(), problem="it is stopped"
        )
    if fault == "traced":
        return replace(one, state="t", cpu=0.0)
    if fault == "gone":
        return replace(one, state="", collectives=None, frames=(), cpu=0.0)
    if fault == "ended":
        return replace(one, phase=Phase.ENDED, frames=(), cpu=0.0)
    return one
