"""Everything that reads what others have written.

A target takes any bytes, and may refuse them in the way that it documents. Anything else that it
raises is a mistake, and so are more than `SECONDS` or `MEMORY`.
"""

from __future__ import annotations

import contextlib
import re
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from safe_launch.catalogue.reader import read_entry
from safe_launch.checkpoints.checkpoint import Saves
from safe_launch.core.errors import LaunchError
from safe_launch.evidence import worker_messages, worker_receiver
from safe_launch.frameworks.config_files import accelerate, deepspeed
from safe_launch.machine.profiles import read_node, read_profile
from safe_launch.nodes.connection import decoded, encoded
from safe_launch.nodes.messages import Message
from safe_launch.nodes.secure_channel import Direction
from safe_launch.planning.named_presets import wanted

from support.fuzz import readers, samples
from support.links import MESSAGES, RECORD
from support.stacks import ROOT

SECONDS = 10
"""Of processor time at most for any input of a few kilobytes."""
MEMORY = 1 << 30
"""Bytes that it may take beyond what the process has."""


@dataclass(frozen=True)
class Target:
    """A reader of what others have written.

    Attributes:
        name: of the input.
        samples: inputs as they should be.
        read: reads one; what it raises beyond `refusals` is a mistake.
        refusals: how it refuses an input.
    """

    name: str
    samples: tuple[bytes, ...]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (LaunchError,)

    def consume(self, data: bytes) -> None:
        """Reads an input, within the limits."""
        with limited(), contextlib.suppress(*self.refusals):
            self.read(data)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limits time and memory of this process."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    earlier = signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, earlier)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _late(_number: int, _frame: object) -> None:
    raise AssertionError(f"not read in {SECONDS} s of processor time")


TARGETS = (
    Target(
        "messages of links",
        tuple(map(encoded, MESSAGES)),
        lambda data: decoded(data, Message),
        (ValueError,),
    ),
    Target(
        "frames of links",
        (b"".join(map(Direction(b"key").sealed, (b"{}", b"[]"))),),
        readers.read_frames,
        (),
    ),
    Target(
        "hellos of links",
        (samples.HELLO,),
        readers.read_hello,
        (),
    ),
    Target(
        "answers of links",
        (samples.ANSWER,),
        readers.read_answer,
        (),
    ),
    Target(
        "messages of workers",
        (
            worker_messages.encoded(1, worker_messages.Failure(RECORD)),
            worker_messages.encoded(1, worker_messages.Observed({"zero_stage": 2}, 3)),
            worker_messages.encoded(1, worker_messages.SaveLocation(Saves("out", 1, {"a": 3}))),
        ),
        worker_receiver.decoded,
        (),
    ),
    Target("logs", tuple(path.read_bytes()[-6000:] for path in samples.LOGS), readers.read_log, ()),
    Target("dumps", samples.DUMPS, readers.read_dump, ()),
    Target("hostfiles", (b"a slots=2\n# b\nc slots=8 x\n\na:0",), readers.read_hosts),
    Target(
        "variables",
        samples.VARIABLES,
        readers.read_variables,
    ),
    Target(
        "presets",
        samples.of(ROOT / "presets", "zero*.yaml"),
        lambda data: wanted(str(readers.file("preset.yaml", data)), ()),
    ),
    Target(
        "devices",
        samples.of(ROOT / "hardware" / "accelerators", "*.yaml"),
        lambda data: read_profile(readers.file("device.yaml", data)),
    ),
    Target(
        "nodes",
        samples.of(ROOT / "hardware" / "nodes", "*.yaml"),
        lambda data: read_node(readers.file("node.yaml", data)),
    ),
    Target(
        "known failures",
        tuple(
            re.sub(rb"\nid: .*", b"\nid: entry", entry)
            for entry in samples.of(ROOT / "presets" / "failures", "*.md")
        ),
        lambda data: read_entry(readers.file("entry.md", data)),
    ),
    Target(
        "DeepSpeed's configurations",
        (samples.DEEPSPEED,),
        lambda data: deepspeed.load(readers.file("ds.json", data)),
        (deepspeed.ConfigError,),
    ),
    Target(
        "accelerate's configurations",
        (b"distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n",),
        lambda data: accelerate.read(readers.file("accelerate.yaml", data)),
    ),
    Target(
        "checkpoints",
        samples.PARTS,
        readers.read_state,
        (),
    ),
    Target("run directories", (samples.LAUNCHER_RECORD,), readers.read_run, ()),
    Target(
        "plans with DeepSpeed",
        (samples.DEEPSPEED,),
        readers.plan_with("--output_dir=out --deepspeed", "plan.json"),
        (),
    ),
    Target(
        "plans with arguments in YAML",
        (b"output_dir: out\nper_device_train_batch_size: 4\nbf16: true\nlearning_rate: 1e-4\n",),
        readers.plan_with("", "plan.yaml"),
        (),
    ),
    Target(
        "plans with arguments in JSON",
        (b'{"output_dir": "out", "per_device_train_batch_size": 4, "bf16": true}',),
        readers.plan_with("", "arguments.json"),
        (),
    ),
    Target(
        "scripts",
        samples.SCRIPTS,
        readers.plan_script,
        (),
    ),
    Target("command lines", (samples.LINE,), readers.plan_line, ()),
)
"""All of them."""
