"""A rank's position, as observed from outside, and whether it works by that."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.limits import Count, Letter, Line, Pid, Rank, Seconds, Share, Word
from ..evidence.failure_record import Frame
from ..progress.board import Phase

WORKS = 0.025
"""Minimum share of a processor that counts as work: hanging ranks used at most 0.01 with all their
threads, a rank saving a checkpoint 0.18."""
LEAST_IO = 16 << 10
"""Minimum bytes read or written during the observation that count as work."""
ENDED_STATES = frozenset({"", "Z", "X"})
"""States of an ended process (proc_pid_stat(5))."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective, or a message from rank to rank, as torch's flight recorder has it.

    Attributes:
        number: its place among the collectives of its group, from 1
            (`collective_seq_id`); for a message, among the messages (`p2p_seq_id`).
        kind: as in `all_reduce`.
        shapes: shapes of its inputs.
        dtypes: their types, as the recorder names them.
        group: name and description of the process group.
        is_retired: the process group has taken it off its list: it is done.
        is_message: it is a send or a receive.
        ranks: the ranks of the group; empty if the recorder doesn't say.
    """

    number: int
    kind: str
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    group: str = ""
    is_retired: bool = False
    is_message: bool = False
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Child:
    """A process that a rank has started, such as a data loader's worker.

    Attributes:
        name: its command, shortened.
        state: its state in /proc, one letter.
        cpu: processor seconds used while it was watched.
        frames: its main thread's stack, outermost first; empty if it can't be read.
    """

    pid: Pid
    name: Word
    state: Letter
    cpu: float
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """A rank's position.

    Attributes:
        host: the node that it runs on; empty for node 0.
        phase: its phase on the board.
        step: optimizer steps done; None if unknown.
        quiet: seconds since it last moved on the board.
        state: its state in /proc (proc_pid_stat(5)): R, S, D, T stopped, t traced, Z; empty if
            the process is gone.
        cpu: processor seconds that it used while it was watched, without its children.
        io: bytes that it and its children read and wrote while they were watched, by system calls.
        window: seconds for which it was watched.
        frames: its main thread's Python stack, outermost first; empty if it can't be read.
        own_files: the files among these frames that belong to the user.
        collectives: its recorder's entries, the oldest first; None if it can't be read.
        children: the processes that it has started.
        utilization: of its device, from 0 to 1; None if unknown.
        problem: the questions that failed, and why; empty if none did.
        is_at_file: it or a child is inside a system call that reads or writes a file.
    """

    rank: Rank
    host: str = ""
    pid: Pid = 0
    phase: Phase = Phase.LOADING
    step: Count | None = None
    quiet: Seconds = 0.0
    state: Letter = "S"
    cpu: Seconds = 0.0
    io: int = 0
    window: Seconds = 0.0
    frames: tuple[Frame, ...] = ()
    own_files: tuple[str, ...] = ()
    collectives: tuple[Collective, ...] | None = None
    children: tuple[Child, ...] = ()
    utilization: Share | None = None
    problem: Line = ""
    is_at_file: bool = False

    @property
    def pending(self) -> list[Collective]:
        """The collectives of its recorder that aren't done."""
        return [entry for entry in self.collectives or () if not entry.is_retired]


def is_busy(standing: Standing) -> bool:
    """Whether the rank or its children use the processor, read or write.

    An uninterruptible process (D) waits for its disk, which counts as work, like a system call that
    reads or writes a file.
    """
    if standing.is_at_file or standing.io >= LEAST_IO:
        return True
    processes: tuple[Standing | Child, ...] = (standing, *standing.children)
    return any(is_process_busy(process, standing.window) for process in processes)


def is_process_busy(process: Standing | Child, window: float) -> bool:
    """Whether a process works or waits for its disk."""
    return process.state == "D" or (window > 0 and process.cpu > WORKS * window)


def is_gone(standing: Standing) -> bool:
    """Whether the process has ended before its script, or the node doesn't respond."""
    return (
        standing.state in ENDED_STATES
        and standing.phase is not Phase.ENDED
        and not is_unbegun(standing)
    )


def is_unbegun(standing: Standing) -> bool:
    """Whether the process hasn't begun."""
    return standing.pid == 0 and standing.phase is Phase.STARTING


def is_traced(standing: Standing) -> bool:
    """Whether a debugger has stopped the process."""
    return standing.state == "t"
