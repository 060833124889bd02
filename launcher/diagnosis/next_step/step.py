"""A rule's view of a failure: the exception and the kind of the run; and the next step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ...catalogue.package_names import package_of_file
from ...catalogue.situation import Device, device_of
from ...evidence.failure_record import FailureRecord, Frame, Raised
from ...frameworks.framework import FrameworkRow
from ...frameworks.registry import FRAMEWORKS

HANDED_ON = re.compile(
    r"Caught \w+ in (?:DataLoader worker process|pin memory thread|replica)"
    r"|(?s:.*)-- Process \d+ terminated with the following error:$"
)
"""Prefix of torch's message for an exception of another process or thread."""
RERAISED = ("raise self._value", "raise self._exception")
"""Lines of Python's pools that re-raise a worker's exception."""
TRAINERS = "`per_device_train_batch_size`, `gradient_checkpointing`"
"""The Trainer's settings that reduce memory."""
ON_CPU = re.compile(
    r"\bgloo\b|ds_accelerator to cpu|device[= :'\"]+cpu\b|\bno (?:GPU|accelerator|CUDA)", re.I
)


class Basis(StrEnum):
    """The basis of a step."""

    QUOTED = "quoted from the message"
    """The message itself gives the instruction."""
    INFERRED = "inferred from the log"
    """A rule infers it from facts in the log."""
    OPEN = "how to find out more"
    """The log doesn't show the cause."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next step.

    Attributes:
        do: the advice, as a line.
        basis: the basis of the advice.
        rule: name of the rule; empty until it is known.
    """

    do: str
    basis: Basis = Basis.INFERRED
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A rule's view of a failure: one of its exceptions and the context.

    Attributes:
        record: the record of the failure.
        raised: the exception, or a line of native code as its message.
        frames: the frames that led to it, outermost first, if known.
    """

    record: FailureRecord
    raised: Raised
    frames: tuple[Frame, ...]

    @property
    def kind(self) -> str:
        """The type of the exception without its module; empty for a line."""
        return self.raised.exception.rpartition(".")[2]

    @property
    def message(self) -> str:
        """The message with normalized white space."""
        return " ".join(self.raised.message.split())

    @property
    def frame(self) -> Frame | None:
        """The frame that raised, if known."""
        return self.raised.frame

    @property
    def package(self) -> str | None:
        """The package of the frame that raised; None for a script's or an unknown frame."""
        return package_of_file(self.frame.file) if self.frame else None

    @property
    def users_frame(self) -> Frame | None:
        """The innermost frame in a user's file, if any."""
        files = self.record.user_files
        return next((frame for frame in reversed(self.frames) if frame.file in files), None)

    @property
    def is_users(self) -> bool:
        """Whether a user's file raised it."""
        return self.frame is not None and self.frame.file in self.record.user_files

    @property
    def around(self) -> str:
        """The preceding log, the frames and the message."""
        frames = (f"{frame.file} {frame.source}" for frame in self.frames)
        return "\n".join([*self.record.log_tail, *frames, self.raised.message])


def case_of(record: FailureRecord) -> Case:
    """The case of a record's last exception, or its line."""
    raised = raised_first(record)
    if raised.frame is None or raised.frame in record.frames:
        return Case(record, raised, record.frames)
    return Case(record, raised, (raised.frame,))


def raised_first(record: FailureRecord) -> Raised:
    """The last exception, or the one it passes on from another process, or the line."""
    last, *chain = [*record.raised()] or [Raised("", record.message)]
    is_again = last.frame is not None and last.frame.source in RERAISED
    if not chain or not (is_again or HANDED_ON.match(last.message)):
        return last
    return replace(chain[0], message=chain[0].message.removesuffix('"""').rstrip())


def filled(text: str, groups: Mapping[str, str | None]) -> str:
    """Replaces names in braces with matched groups, or `it` if unmatched."""
    return re.sub(r"\{(\w+)\}", lambda name: groups.get(name[1]) or "it", text)


@dataclass(frozen=True, slots=True)
class Run:
    """The facts on a run.

    Attributes:
        framework: the one whose loop it is; None if unknown.
        device: its accelerator; None if unknown.
        is_cpu: whether the log shows a run without an accelerator.
    """

    framework: FrameworkRow | None
    device: Device | None
    is_cpu: bool

    @property
    def is_no_nvidia(self) -> bool:
        """Whether the devices are another vendor's or absent, so advice on NVIDIA's is wrong."""
        return self.is_cpu or self.device in (Device.NPU, Device.ROCM, Device.XPU)

    @property
    def less_memory(self) -> str:
        """The framework's settings that reduce memory; empty if unknown."""
        if self.framework is None:
            return ""
        return self.framework.less_memory or (TRAINERS if self.framework.on_trainer else "")


def run_of(case: Case) -> Run:
    """Detects the kind of run in a failure's log."""
    around = case.around
    frameworks = (row for row in FRAMEWORKS if row.in_log and re.search(row.in_log, around))
    device = device_of(case.record)
    return Run(next(frameworks, None), device, device is None and ON_CPU.search(around) is not None)
