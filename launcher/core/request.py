"""The user's request to the launcher."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Literal

from .output_routing import Streams
from .placement import Placement
from .secrets import hidden_arguments
from .settings import Setting


class Fix(StrEnum):
    """The corrections that the launcher may make."""

    AUTO = "auto"
    """Change what is known to fail, before and after the launch."""
    ONCE = "once"
    """As `auto`, but relaunch one time at most."""
    SUGGEST = "suggest"
    """Change nothing: explain what would be changed."""


@dataclass(frozen=True, slots=True)
class StopTimes:
    """Seconds that workers get between one signal and the next.

    Attributes:
        leave: from a worker's own failure to its SIGTERM, for its record and its exit handlers.
        interrupt: from SIGINT to SIGTERM, after Ctrl-C.
        terminate: from SIGTERM to SIGKILL.
    """

    leave: float = 5.0
    interrupt: float = 10.0
    terminate: float = 15.0


@dataclass(frozen=True, slots=True)
class HangTimes:
    """Times after which a run without progress is reported, and ended.

    Attributes:
        report: least seconds without progress before the ranks are queried; 0 for never.
        timeout: seconds without progress after which the run is ended; None to end it only if
            waiting is proven not to help.
    """

    report: float = 60.0
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """The launcher's freedom to act by itself.

    Attributes:
        fix: the corrections that it may make.
        strict: refuse a launch that would need a change.
        allow_restart: a correction may restart from scratch if it can't resume.
        max_restarts: how often a failure of unknown cause is restarted with the same plan.
        forget: launch without the lessons of earlier runs.
        asks: settings may also be changed at the workers' boundaries.
        never_changed: settings that stay as asked, each with its source.
    """

    fix: Fix = Fix.AUTO
    strict: bool = False
    allow_restart: bool = False
    max_restarts: int = 0
    forget: bool = False
    asks: bool = True
    never_changed: tuple[tuple[Setting, str], ...] = ()

    @property
    def kept(self) -> frozenset[Setting]:
        """The settings that must not change."""
        return frozenset(setting for setting, _ in self.never_changed)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The checks for what trains wrongly without an error.

    Attributes:
        mode: whether they are made, and whether one ends the run.
        muted: checks that aren't made, by their names.
    """

    mode: Literal["on", "off", "strict"] = "on"
    muted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options for starting, displaying and stopping this node's workers.

    Attributes:
        start_method: `spawn` for fresh processes, or `forkserver`.
        keep_warm: seconds for which the workers' imports are kept for the next launch.
        interpreter: the Python that runs the workers; empty for this one.
        own_device: every worker sees only its own device, as device 0.
        numa_binding: torch's way of binding workers to the cores near their GPUs; empty for none.
        cores: CPU cores of each worker, in order; empty if workers aren't bound.
        forwarded: signals that are passed on to workers with a handler for them.
        streams: where the workers' output goes.
    """

    stop_times: StopTimes = StopTimes()
    hang_times: HangTimes = HangTimes()
    start_method: Literal["spawn", "forkserver"] = "forkserver"
    keep_warm: float = 0.0
    interpreter: str = ""
    role: str = "default"
    own_device: bool = False
    numa_binding: str = ""
    cores: tuple[tuple[int, ...], ...] = ()
    forwarded: tuple[int, ...] = (signal.SIGUSR1, signal.SIGUSR2)
    streams: Streams = field(default_factory=Streams)
    checks: CheckOptions = CheckOptions()


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The launcher's options, the script and its arguments.

    Attributes:
        script: path of a Python file, or the name of a module if `is_module`.
        is_module: `-m` was given.
        arguments: the script's own arguments, untouched.
        nproc: workers to start on this node.
        nproc_source: where that number was read.
        is_program: `script` is an executable file, not Python: it is run unchanged, and nothing can
            be observed or corrected inside.
        log_dir: folder for the run directory; None for the user's cache.
        metrics: a file, `:PORT` or `HOST:PORT`; empty for none.
        workers: the number of workers of each node, by rank, once the nodes have agreed; empty
            before, when all nodes are assumed to be like this one.
        whole_world: the number of workers before nodes were lost, for which the script's batch was
            meant; None if none were lost.
    """

    script: str
    is_module: bool
    arguments: tuple[str, ...]
    nproc: int
    nproc_source: str
    is_program: bool = False
    log_dir: Path | None = None
    metrics: str = ""
    placement: Placement = field(default_factory=Placement)
    workers: tuple[int, ...] = ()
    whole_world: int | None = None
    limits: Limits = Limits()
    worker_options: WorkerOptions = field(default_factory=WorkerOptions)

    @property
    def command(self) -> str:
        """The script as the user would type it, without secrets."""
        head = f"-m {self.script}" if self.is_module else self.script
        return " ".join([head, *hidden_arguments(self.arguments)])

    @property
    def nodes(self) -> tuple[int, ...]:
        """The number of workers of each node, by rank."""
        return self.workers or (self.nproc,) * self.placement.nodes

    @property
    def world(self) -> int:
        """The number of workers of all nodes."""
        return sum(self.nodes)

    def document(self) -> dict[str, object]:
        """All options in one mapping, for the run directory; without secrets."""
        groups = (self.limits, self.worker_options)
        names = [field.name for field in fields(self) if getattr(self, field.name) not in groups]
        options = {name: getattr(self, name) for name in names} | {
            field.name: getattr(group, field.name) for group in groups for field in fields(group)
        }
        return options | {"arguments": hidden_arguments(self.arguments)}
