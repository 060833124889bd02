"""The limits of each field of another node's message: a range, a pattern or a list.

msgspec checks the types when it converts a message. The limits are checked afterwards: nothing
beyond them is used, whoever sent it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import get_args

from msgspec import Struct

from ..checkpoints.checkpoint import NAME, Resume
from ..checks.between_ranks import Compared
from ..checks.finding import Finding
from ..core.choices import Framework
from ..core.count_of import count_of
from ..core.described_model import is_described_model
from ..core.errors import ExitCode
from ..core.hardware import Accelerator, Hardware
from ..core.settings import Setting, Value, is_value
from ..evidence.failure_record import FailureRecord
from ..evidence.worker_messages import Answer
from ..evidence.worker_messages import Ask as Question
from ..hangs.standing import Child, Standing
from ..progress.board import WINDOW, RankProgress
from ..system.signals import ENDING
from .bounds import Bound, number, pattern, text
from .messages import (
    Accepted,
    Ended,
    Failing,
    Join,
    Message,
    NodeAnswer,
    NodeAsk,
    NodeCompared,
    NodeFound,
    NodeObserved,
    NodeWentOn,
    Order,
    Pong,
    Refusal,
    RunEnded,
    RunStarted,
    Signalled,
    Standings,
    Stop,
    Unable,
)

NODES, WORKERS = 1 << 16, 1 << 12
"""Nodes of a job, and workers of a node, at most: more than any real cluster has."""
RANKS = NODES * WORKERS
BYTES = 1 << 63
SECONDS = 1e12
RATE = 1e24
WORD, LINE, PARAGRAPHS = 256, 4096, 1 << 16
"""Characters of a name, a line and a few sentences, at most."""
SHOWN = 60
"""Characters of a wrong value that are shown."""
FAILURES = frozenset(int(code) for code in ExitCode if code)
"""Exit codes of a launcher that can't take part."""
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}", re.ASCII)
"""The format of `run_directory.new_id`."""


def _are_settings(values: Mapping[str, Value]) -> bool:
    """Whether each name is a known setting or fact, and its value has the right type and range."""
    return all(is_value(value, name) and len(str(value)) <= LINE for name, value in values.items())


def _are_named_settings(names: list[str]) -> bool:
    return len(names) <= len(Setting) and all(name in {*Setting} for name in names)


def _are_versions(values: Mapping[str, str]) -> bool:
    return all(len(name) <= WORD and len(value) <= WORD for name, value in values.items())


def _describes_model(described: Mapping[str, Value]) -> bool:
    """Whether it has the form of what `Observations.describe_model` returns."""
    kinds = {"class": str, "trainable_parameters": int, "frozen_parameters": int, "peft": bool}
    return all(type(value) is kinds.get(name) for name, value in described.items())


NAMED = Bound(
    "a name of at most 256 characters", lambda name: 0 < len(name) <= WORD and "\n" not in name
)
STOP = Bound("a signal that stops a run", lambda number: number in ENDING)
SETTINGS = Bound("settings and facts with valid values", _are_settings)
SHAPE = Bound("a model's shape", is_described_model)
VERSIONS = Bound("short names and versions", _are_versions)
DIGEST = pattern(re.compile(r"|[0-9a-f]{64}"), "a digest")
CODE = number(0, 255)
REASON = MappingProxyType(
    {
        "code": Bound("a code of a launcher's failure", lambda code: code in FAILURES),
        "problem": text(PARAGRAPHS),
        "hint": text(PARAGRAPHS),
    }
)
"""Why a launcher can't take part."""
PIDS = 1 << 22
"""The largest process id of Linux (proc_sys_kernel(5), pid_max)."""
TIMES = Bound(
    "a few numbers of seconds",
    lambda times: len(times) <= WINDOW and all(0 <= time < SECONDS for time in times),
)

BOUNDS: Mapping[type, Mapping[str, Bound]] = MappingProxyType(
    {
        Join: {
            "job": text(LINE),
            "rank": number(0, NODES - 1),
            "host": NAMED,
            "nproc": number(1, WORKERS),
            "versions": VERSIONS,
            "script": DIGEST,
            "arguments": DIGEST,
            "nnodes": pattern(re.compile(r"|\d{1,9}(:\d{1,9})?", re.ASCII), "N or MIN:MAX"),
        },
        Unable: {
            "job": text(LINE),
            "rank": number(0, NODES - 1),
            "host": NAMED,
            **REASON,
        },
        Hardware: {
            "accelerators": number(0, WORKERS),
            "cores": number(1, NODES),
            "host_memory": number(1, BYTES),
            "in_use": number(0, BYTES),
            "source": text(LINE),
        },
        Accelerator: {
            "name": NAMED,
            "kind": NAMED,
            "memory": number(0, BYTES),
            "taken": number(0, BYTES),
            **dict.fromkeys(
                ("compute", "bandwidth", "link", "node_link", "host_link"), number(1, RATE)
            ),
            "environment": Bound(
                "empty: variables don't cross a connection", lambda variables: not variables
            ),
        },
        Accepted: {"here": number(1, NODES), "nodes": number(1, NODES)},
        RunStarted: {
            "run_id": pattern(RUN_ID, "a run's id"),
            "rank": number(1, NODES - 1),
            "nodes": number(2, NODES),
            "devices": Bound(
                "names of profiles", lambda names: all(NAMED.allows(name) for name in names)
            ),
        },
        Refusal: REASON,
        Order: {
            "attempt": number(0, 1 << 16),
            "run_id": pattern(RUN_ID, "a run's id"),
            "rank": number(1, NODES - 1),
            "workers": Bound(
                "numbers of workers", lambda nodes: all(0 < workers <= WORKERS for workers in nodes)
            ),
            "port": number(1, 65535),
            "preset": SETTINGS,
            "overrides": SETTINGS,
            "replaced": SETTINGS,
        },
        Resume: {"training": number(0, 1 << 16), "name": pattern(NAME, "a checkpoint's name")},
        Stop: {"signal": STOP},
        Signalled: {"signal": STOP},
        NodeObserved: {"observed": SETTINGS, "model": SHAPE},
        NodeAsk: {"rank": number(0, RANKS)},
        Question: {
            "key": text(WORD),
            "changeable": Bound("names of settings", _are_named_settings),
            "facts": SETTINGS,
            "framework": Bound("a framework", lambda name: name in {"", *Framework}),
            "shape": SHAPE,
            "frame": text(LINE),
            "step": number(0, BYTES),
        },
        NodeAnswer: {"rank": number(0, RANKS)},
        Answer: {"key": text(WORD), "overrides": SETTINGS, "replaced": SETTINGS},
        NodeWentOn: {"rank": number(0, RANKS), "key": text(WORD)},
        NodeFound: {"rank": number(0, RANKS)},
        Finding: {
            **dict.fromkeys(("sentence", "advice", "where"), text(LINE)),
            "step": number(0, BYTES),
            "ranks": Bound("empty: the message has the rank", lambda ranks: not ranks),
            "parameter": text(LINE),
        },
        NodeCompared: {"rank": number(0, RANKS)},
        Compared: {
            **dict.fromkeys(("value", "place"), text(LINE)),
            "step": number(0, BYTES),
            "names": Bound(
                "a few names",
                lambda names: len(names) <= WORD and all(len(name) <= WORD for name in names),
            ),
        },
        Failing: {"now": number(-SECONDS, SECONDS)},
        Ended: {"signal": STOP, "now": number(-SECONDS, SECONDS)},
        FailureRecord: {
            "rank": number(0, RANKS),
            "at": number(-SECONDS, SECONDS),
            "exception": text(LINE),
            **dict.fromkeys(("step", "start"), number(0, BYTES)),
            "mistyped": Bound("short names", _are_versions),
            "observed": SETTINGS,
            "model": Bound("a model's description", _describes_model),
            "versions": VERSIONS,
            "exit_code": CODE,
            "signal": number(1, 64),
            "oom_kills": number(0, BYTES),
            "memory": Bound(
                "numbers of bytes",
                lambda memory: all(0 <= size <= BYTES for size in memory.values()),
            ),
        },
        RankProgress: {
            "rank": number(0, RANKS),
            "pid": number(0, PIDS),
            **dict.fromkeys(("step", "start", "thread"), number(0, 1 << 64)),
            **dict.fromkeys(("samples", "tokens"), number(0, BYTES)),
            **dict.fromkeys(("quiet", "in_phase", "longest_quiet"), number(0, SECONDS)),
            **dict.fromkeys(("own", "whole"), TIMES),
        },
        Standing: {
            "rank": number(0, RANKS),
            "host": Bound("empty: node 0 knows whose connection it is", lambda host: not host),
            "pid": number(0, PIDS),
            "step": number(0, BYTES),
            "state": text(1),
            "utilization": number(0, 1),
            "problem": text(LINE),
            **dict.fromkeys(("quiet", "cpu", "window"), number(0, SECONDS)),
        },
        Child: {"pid": number(0, PIDS), "name": text(WORD), "state": text(1)},
        RunEnded: {"code": CODE, "line": text(PARAGRAPHS), "diagnosis": text(LINE)},
    }
)
"""Limits by type and field; an optional field may also be None."""

WHOLES: Mapping[type, Bound] = MappingProxyType(
    {
        Accepted: Bound(
            "here are no more than may come", lambda accepted: accepted.here <= accepted.nodes
        ),
        RunStarted: Bound(
            "the rank is of one of the nodes", lambda started: started.rank < started.nodes
        ),
        Order: Bound(
            "the rank is of one of the nodes, and what is enforced is in the plan",
            lambda order: (
                order.rank < len(order.workers) <= NODES
                and order.overrides.items() <= order.preset.items()
            ),
        ),
        Ended: Bound(
            "a success has no failures", lambda ended: not (ended.is_success and ended.records)
        ),
        FailureRecord: Bound("it is a worker's", lambda record: record.rank is not None),
    }
)
"""Limits on several fields of a value together."""


LARGE = 1 << 24
SIZES: Mapping[type, int] = MappingProxyType(
    {
        **dict.fromkeys((Join, Unable, Refusal), 1 << 16),
        Order: 1 << 20,
        **dict.fromkeys((NodeObserved, NodeAsk, Failing, Ended, Pong, Standings), LARGE),
    }
)
"""Bytes of a message at most, by type; a few thousand workers' records are the largest."""
SIZE = 1 << 18
"""Bytes of every other message at most."""


@cache
def largest(allowed: UnionType) -> int:
    """Bytes of the largest of several types of messages."""
    return max(SIZES.get(kind, SIZE) for kind in get_args(allowed))


def problem(message: Message, size: int = 0) -> str | None:
    """The first field beyond its limits, with the limits; None where all are within.

    Args:
        message: a message.
        size: its bytes.
    """
    kind = type(message)
    if size > (most := SIZES.get(kind, SIZE)):
        return f"{kind.__name__} of {count_of(size, 'byte')}, and {most:,} are allowed"
    return next(_problems(message, kind.__name__), None)


def _problems(value: object, name: str) -> Iterator[str]:
    kind: type = type(value)
    if isinstance(value, tuple | frozenset):
        for member in value:
            yield from _problems(member, name)
    elif isinstance(value, int | float):
        if not -BYTES <= value <= BYTES:
            yield f"{name}: {_shown(value)} isn't {number(-BYTES, BYTES).words}"
    elif members := _members(kind):
        bounds = BOUNDS.get(kind, {})
        for field in members:
            content, bound = getattr(value, field), bounds.get(field)
            if bound is None:
                yield from _problems(content, f"{name}.{field}")
            elif content is not None and not bound.allows(content):
                yield f"{name}.{field}: {_shown(content)} isn't {bound.words}"
        whole = WHOLES.get(kind)
        if whole is not None and not whole.allows(value):
            yield f"{name}: it doesn't hold that {whole.words}"


@cache
def _members(kind: type) -> tuple[str, ...]:
    """Names of the fields of a message, or of a value in one."""
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
