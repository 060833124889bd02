"""Asks a script for its plan: one process runs it until its settings are known.

`asked_process` runs it; this module interprets its end and lists the files written meanwhile.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ..core.choices import Framework
from ..core.errors import LaunchError
from ..core.hardware import Hardware
from ..core.request import LaunchRequest
from ..core.script import Ending, ScriptAnswers
from ..evidence.from_exception import name_of as qualified
from ..evidence.plan_query import EndOfQueryError
from ..system import files_below, terminal
from .asked_process import BOUND, Reports, run
from .head import require_torch
from .questions import where_of

MOST_LINES = 40
"""Lines of the script's output that are shown, the last."""
DEEPEST, MOST_FILES = 3, 5000
"""Limits on the search for files that the script writes."""
ON_META = re.compile(r"\bmeta tensors?\b|\bdevice:? ?'?meta\b|\bmeta device\b|tensors? on meta")
"""Messages of torch if values of a tensor on the meta device are needed."""
WITHOUT_DEVICE = re.compile(r"\b(CUDA|NVIDIA|GPU|NPU|XPU|HIP)\b", re.IGNORECASE)


def ask(request: LaunchRequest, hardware: Hardware, here: Hardware) -> ScriptAnswers:
    """Runs a script in one process until its plan for some hardware is known; returns its answers.

    This host has the hardware `here`.

    Raises:
        LaunchError: it isn't Python, or can't be started.
        SystemExit: a signal has stopped it.
    """
    if request.is_program:
        problem = "plan --ask: only a Python script can be asked, not a program"
        raise LaunchError(problem, "leave out --no-python, or --ask")
    require_torch()
    name = request.script if request.is_module else Path(request.script).name
    terminal.reassure(f"asking {name}: {BOUND:.0f} s at most")
    folders = [Path.cwd(), *_output_folders(request.arguments)]
    before, begun, reports = _files(folders), time.monotonic(), Reports()
    code, number = run(request, hardware, reports)
    seconds = time.monotonic() - begun
    if number is not None:
        terminal.say(f"{signal.Signals(number).name}: {name} is stopped without a plan")
        raise SystemExit(128 + number)
    after, is_bare = _files(folders), not here.accelerators
    ending, where, why = _ending(reports, code, is_bare=is_bare)
    kinds = {here.accelerator.kind} if here.accelerators else set()
    lacks = hardware.accelerators and hardware.accelerator.kind not in kinds
    lines = reports.output.decode(errors="replace").splitlines()
    frameworks = [question.framework for question in reports.questions if question.framework]
    return ScriptAnswers(
        script=name,
        ending=ending,
        seconds=seconds,
        where=where,
        why=why,
        statements=tuple(reports.statements(f"{name} itself")),
        framework=Framework(frameworks[-1]) if frameworks else None,
        shape=reports.shape,
        output="\n".join(lines[-MOST_LINES:]),
        written=tuple(_named(path) for path, at in after.items() if before.get(path) != at),
        lacking=hardware.accelerator.name if lacks else "",
    )


def _ending(reports: Reports, code: int | None, *, is_bare: bool) -> tuple[Ending, str, str]:
    """How the process ended, where, and why; `code` is None if it was ended by the launcher.

    The host `is_bare` if it has no accelerators.
    """
    last = where_of(reports.questions[-1]) if reports.questions else ""
    record = reports.record
    if reports.is_whole:
        return Ending.WHOLE, last, ""
    if record is None:
        if reports.is_finished:
            return Ending.OVER, last, ""
        if code is None:
            return Ending.LATE, last, ""
        how = f"it left with exit code {code}"
        if code < 0:
            how = f"it was ended by {signal.Signals(-code).name}"
        return Ending.FAILED, last, how
    frames = [frame for frame in record.frames if frame.file in record.user_files]
    where = f"{_named(Path(frames[-1].file))}:{frames[-1].line}" if frames else last
    message = record.message.strip().partition("\n")[0]
    if record.exception == qualified(EndOfQueryError):
        return Ending.CUT, where, message
    raised = f"{record.exception.removeprefix('builtins.')}: {message}".rstrip(": ")
    if raised == f"SystemExit: {record.exit_code}":
        raised = f"it left with exit code {record.exit_code}"
    if ON_META.search(record.message):
        return Ending.CUT, where, f"it needs weights there ({raised})"
    if is_bare and WITHOUT_DEVICE.search(record.message):
        return Ending.CUT, where, f"it needs a device there ({raised})"
    return Ending.FAILED, where, f"{where}: {raised}" if where else raised


def _output_folders(arguments: Sequence[str]) -> Iterator[Path]:
    """The folder that the script's arguments name for its output, outside the current one."""
    for word, following in pairwise([*arguments, ""]):
        name, equals, value = word.partition("=")
        if name in ("--output_dir", "--output-dir"):
            folder = Path(value if equals else following).absolute()
            if not folder.is_relative_to(Path.cwd()):
                yield folder


def _files(folders: Sequence[Path]) -> Mapping[Path, int]:
    """The files of these folders without bytecode, and when they were last written."""
    times, existing = {}, [folder for folder in folders if folder.is_dir()]
    for path in files_below.find(existing, DEEPEST, MOST_FILES).files:
        if path.suffix != ".pyc":
            with suppress(OSError):  # it is gone
                times[path] = path.lstat().st_mtime_ns
    return times


def _named(path: Path) -> str:
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
