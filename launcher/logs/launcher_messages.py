"""Parses messages of launchers and schedulers: ends of workers, beginnings of attempts."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ..catalogue.package_names import package_of_file
from ..frameworks.registry import COMMANDS, FRAMEWORKS

STARTS = (
    r"Setting OMP_NUM_THREADS environment variable for each process",
    r"runner\.py:\d+:main\] cmd = ",
    r"launch\.py:\d+:main\] WORLD INFO DICT",
    r"\[safe-launch\] relaunching: attempt",
    r"\[safe-launch\] (?:run|plan) ",
    r"Starting elastic_operator with launch configs",
    r"will restart worker group",
    r"Joining cluster restart \(group_rank=",  # NVIDIA's ft_launcher
    r"Attempting to start training worker group of size ",  # Ray Train
    r"\] Agent starting workers for entrypoint: ",  # SageMaker HyperPod
    r"Process diagnosis action: restart_worker",  # DLRover
    r"DUE TO JOB REQUEUE",
    rf"(?:^|[\n\r])\+ [^\n\r]*\b(?:srun|torchrun|deepspeed|safe-launch|{COMMANDS})\b",
    r"(?:^|[\n\r])\+ [^\n\r]*\b(?:python3?|bash|sh) \S",
)
"""Lines of a launcher that starts or restarts."""
RESUMES = (
    r"\b[Rr]estor(?:ed|ing) (?:all )?states from",  # Lightning
    r"\b[Rr]esum(?:ed|ing) (?:training )?(?:from|at) ",
)
"""Lines of a training that goes on from a checkpoint, which after an attempt's end begins one."""
ENDS = (
    r"ChildFailedError: *(?:$|[\n\r])",
    r"Root Cause \(first observed failure\)",
    r"\] exits with return code = -?[1-9]",
    r"failed \(exitcode: ",
    r"\[safe-launch\] attempt \d+:? failed",
    r"DUE TO JOB REQUEUE",
    r"srun: error: \S+: tasks? [\d,-]+: ",
    r"will restart worker group",
    r"Joining cluster restart \(group_rank=|Some rank\(s\) exited with non-zero exit code: ",
    r"Progress tracker detected no progress across restarts",
    r"\[FailurePolicy\] R(?:ETRY|AISE)|Deciding to (?:RESTART|TERMINATE|RAISE), since ",
    r"worker group changed to (?:WorkerState\.)?(?:FAILED|UNHEALTHY) state",
    r"Worker group in unrecoverable (?:FAILED|UNHEALTHY) state",
    r"The worker fails with \{",
)
"""Lines of a launcher that report an attempt's failure."""
HANGS = (
    r"Did not get (?:initial|subsequent) heartbeat\. Waited [\d.]+ seconds",
    r"Section '[^'\n]+' has been open for [\d.]+ seconds\. Timeout is ",
    r"Was out of section for [\d.]+ seconds\. Timeout is ",
    r"LogState\.HANGING for rules=",
    r"Got hang worker: \d+, time last: ",
    r"\] All nodes hanged",
)
"""Lines in which a launcher reports a stalled rank, before it ends that rank's process:
nvidia_resiliency_ext/fault_tolerance/rank_monitor_server.py, HyperPod's hyperpod_elastic_agent.py
1.1.3, DLRover's training_hang.py and dist_master.py."""
IS_START, IS_END, IS_HANG, IS_RESUMED = (
    re.compile("|".join(words)) for words in (STARTS, ENDS, HANGS, RESUMES)
)
CANCELLED = re.compile(r"slurmstepd\S*: error: \*\*\* JOB \S+ ON \S+ CANCELLED AT ")
"""Slurm's end of a job; a later exception, other than of stopping, belongs to another job."""
STOPPING = (
    *("KeyboardInterrupt", "SignalException", "SystemExit", "ChildFailedError"),
    *("BrokenPipeError", "ConnectionResetError", "EOFError", "DistBackendError"),
)
CHILD = (
    *("SystemExit", "CalledProcessError", "ChildFailedError"),
    *("ProcessRaisedException", "ProcessExitedException"),
)
"""Exceptions that only report another failure, usually a child's."""
PEER = (
    *CHILD,
    *("BrokenPipeError", "ConnectionResetError", "BrokenProcessPool", "EOFError"),
    *("RayActorError", "ActorDiedError", "WorkerCrashedError", "EngineDeadError"),
)
"""Exceptions that only report a failure of a child or another connected process."""
ELSEWHERE = re.compile(
    r"root cause above|stack trace \(?above|closed by peer|reset by peer|exited unexpectedly"
    r"|terminated abruptly|died unexpectedly",
    re.IGNORECASE,
)
LAUNCHER_FILES = (
    "torch/distributed/run.py",
    "torch/distributed/launch.py",
    "torch/distributed/launcher/api.py",
    "torch/distributed/elastic/",
    "deepspeed/launcher/",
    *(file for row in FRAMEWORKS for file in row.launching),
)
_OTHERS = "|".join(command for row in FRAMEWORKS if row.launching for command in row.commands)
CONSOLE_SCRIPT = re.compile(r"/bin/[^/.]+$")
"""The file that pip writes for a package's command."""
LAUNCHER = re.compile(rf"[/\\]bin[/\\](?:torchrun|deepspeed|{_OTHERS})$")
"""Launcher programs: the outermost frame of their exceptions."""
LAUNCHED = re.compile(
    r"\btorchrun\b|torch[./]distributed[./](?:run|launch)|'(?:\S*/)?(?:deepspeed|accelerate)'|--local[-_]rank"
)
"""Launcher commands, in the error message of their caller."""

FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)")
RETURNED = re.compile(
    r"(?:(?:\]|[:\uff1a\u9519]) ?|^\W*)exits with return code = (?P<code>-?\d+)\W*$"
)
"""DeepSpeed's report behind the command, or behind somebody's words."""
LOCAL_RANK = re.compile(r"--local[-_]rank=(\d+)")
ROOT_CAUSE = "Root Cause (first observed failure)"
SUMMARY_RANK = re.compile(r"\s*rank +: (?P<rank>\d+)")
SUMMARY_CODE = re.compile(r"\s*exitcode +: (?P<code>-?\d+)")
TASK = re.compile(
    r"srun: error: \S+: tasks? (?P<rank>\d+)(?:[\d,-]*): "
    r"(?P<what>Exited with exit code (?P<code>\d+)|Killed|Terminated|Aborted|Bus error"
    r"|Segmentation fault|Out Of Memory|Illegal instruction"
    r"|Floating point exception)"
)
DIED = {
    "Killed": signal.SIGKILL,
    "Out Of Memory": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Aborted": signal.SIGABRT,
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
}
SHELL = re.compile(
    rf"\S+: line \d+: +\d+ +(?P<job>{'|'.join(DIED)})(?: +\(core dumped\))?"
    r"(?: +(?P<command>\S.*))?$"
    rf"|(?:\[\d+\]\+? +)?(?P<what>{'|'.join(DIED)})(?: +\(core dumped\))?$"
)
"""bash's messages on a child's death, with and without the script's name."""
CORRUPTED = re.compile(
    r"(?:free|malloc|realloc|calloc|munmap_chunk)\(\): |malloc_consolidate|double free or corr"
    r"|corrupted (?:size|double)|\*\*\* (?:stack smashing|buffer overflow) detected"
    r"|\S+: \S+:\d+: .*\bAssertion `.*' failed\."
)
"""glibc's messages before it aborts a process: malloc.c, fortify_fail.c, assert.c."""
FATAL = re.compile(r"Fatal Python error: (?P<what>Segmentation fault|Bus error|Aborted)")
TRAINS = re.compile(rf"python|\.py\b|torchrun|deepspeed|srun|mpirun|safe-launch|\b(?:{COMMANDS})\b")
"""Commands that run a training."""
CONTAINER = re.compile(
    r"(?:command terminated with exit code|^[\w.-]+-\d+ exited with code"
    r"|^pdsh@\S+: \S+: ssh exited with exit code|^make(?:\[\d+\])?: \*\*\* .* Error) (?P<code>\d+)$"
)
"""Messages of kubectl, docker compose, pdsh and make on the exit of a command."""

SPAWNED = re.compile(
    r"ProcessExitedException: process (?P<rank>\d+) terminated with"
    r" (?:exit code (?P<code>\d+)|signal (?P<name>SIG\w+))$"
)
"""torch's report on a process that `spawn` has started (torch/multiprocessing/spawn.py)."""
IN_WORDS = re.compile(
    r"\b(?:return|exit)(?:s|ed)?(?: with)?[ -]?(?:return |exit )?code\W{0,3}(?: is| of| =)?\s?"
    r"(?P<code>-\d{1,2}|3221\d{6})\b"
    r"|\b(?:got|received|by|with|exits?) signal\W{1,2}(?P<signal>1|4|6|7|8|9|11)\b"
    r"|(?:^\W*|\b(?:die[sd]|kill(?:s|ed)|ended|terminated|crash\w*|exit(?:s|ed)|got|gets?|received"
    r"|fail(?:s|ed)|abort\w*|gives|raises|causes|throws)\b[^.;,]{0,60}\b|\d[,:]? \(?"
    r"|\b(?:by|with|via|an?|worker|process) )(?P<name>SIG(?:KILL|SEGV|BUS|ILL|FPE|HUP))\b"
    r"|\b(?:die[sd]|crash\w*|gets?|got|getting|causes)\b[^.;:]{0,40}\b"
    r"(?P<fault>segmentation fault|bus error)\b"
    r"|\b(?P<named>SIG(?:KILL|SEGV|BUS|ILL|FPE))\)? (?:received|errors?|crash\w*|faults?|signal|in"
    r"|when|at|during|after|on)\b",
    re.IGNORECASE,
)
"""An end by a signal, or with a status of Windows, in a sentence or title."""


@dataclass(frozen=True, slots=True)
class Death:
    """A worker's end, as reported by its launcher.

    Attributes:
        number: number of the line.
        rank: the worker's rank; None if unknown.
        exit_code: as in a shell: 128 + N for signal N.
        signal: the signal that ended it.
    """

    number: int
    rank: int | None
    exit_code: int
    signal: int | None


def death_of(number: int, text: str, summary_rank: int | None) -> Death | None:
    """The death that a line reports, if any."""
    rank, code = _rank_and_code(text, summary_rank)
    if code == 0:
        return None
    deadly = -code if code < 0 else code - 128 if 128 < code < 160 else None
    return Death(number, rank, code if code > 0 else 128 - code, deadly)


def exit_in_words(number: int, text: str) -> Death | None:
    """The death that a sentence reports, if any."""
    match = IN_WORDS.search(text)
    if match is None:
        return None
    code = int(match["code"] or 0)
    if code > 0:
        return Death(number, None, code, None)
    name = (match["name"] or match["named"] or "").upper()
    fault = DIED.get((match["fault"] or "").capitalize())
    deadly = -code or fault or int(match["signal"] or signal.Signals[name])
    return Death(number, None, 128 + deadly, deadly)


def _rank_and_code(text: str, summary_rank: int | None) -> tuple[int | None, int]:
    """The rank and exit code in a line, as a shell's or a negative signal; 0 if none."""
    if match := FAILED.search(text):
        return int(match["rank"]), int(match["code"])
    if match := RETURNED.search(text):
        rank = LOCAL_RANK.search(text)
        return int(rank[1]) if rank else None, int(match["code"])
    if match := SUMMARY_CODE.match(text):
        return summary_rank, int(match["code"])
    if match := TASK.match(text):
        return int(match["rank"]), int(match["code"] or -DIED[match["what"]])
    if (match := SHELL.match(text)) and TRAINS.search(match["command"] or "python"):
        return None, -DIED[match["job"] or match["what"]]
    if match := FATAL.match(text):
        return None, -DIED[match["what"]]
    if CORRUPTED.match(text):
        return None, -signal.SIGABRT
    if match := CONTAINER.search(text):
        return None, int(match["code"])
    if match := SPAWNED.search(text):
        number = signal.Signals.__members__.get(match["name"] or "")
        code = int(match["code"] or -(number or 0))
        return (int(match["rank"]), code) if code not in (0, 1) else (None, 0)
    return None, 0


def reports_failed_workers(kind: str, message: str, files: tuple[str, ...]) -> bool:
    """Whether an exception only reports failed workers of a launcher."""
    name = kind.rpartition(".")[2]
    if name in CHILD[2:]:
        return True
    if name == "CalledProcessError":
        called = [file for file in files if not file.endswith("subprocess.py")][-1:]
        is_tool = "returned non-zero" in message and not TRAINS.search(message)
        if is_tool and not any(file.endswith("commands/launch.py") for file in called):
            return False  # such as ssh, by which a launcher looks for other hosts
        return _is_of_launchers(called) or LAUNCHED.search(message) is not None
    if name == "SystemExit":
        return _is_of_launchers(files)
    return False


def _is_of_launchers(files: Sequence[str]) -> bool:
    return any(mark in file for file in files for mark in LAUNCHER_FILES)


def is_of_another(kind: str, message: str) -> bool:
    """Whether an exception only reports the failure or loss of another process."""
    name = kind.rpartition(".")[2]
    is_empty_file = name == "EOFError" and bool(message)
    is_of_peer = name in PEER or kind.startswith("ray.exceptions.")
    return (is_of_peer and not is_empty_file) or ELSEWHERE.search(message) is not None


def is_of_launcher(files: tuple[str, ...]) -> bool:
    """Whether a traceback comes from a launcher's process."""
    return any(LAUNCHER.search(file) for file in files[:1])


def is_of_stopping(kind: str, message: str) -> bool:
    """Whether an exception may result from stopping a worker."""
    return kind.rpartition(".")[2] in STOPPING or "killed by signal: Terminated" in message


def is_users(file: str) -> bool:
    """Whether a file in a traceback is likely to be the user's."""
    is_named = not file.startswith("<") and LAUNCHER.search(file) is None
    return is_named and package_of_file(file) is None and CONSOLE_SCRIPT.search(file) is None
