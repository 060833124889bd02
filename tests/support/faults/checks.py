"""Runs a trial, and checks what must hold whatever the fault was."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support.faults.allowed import allowed
from support.faults.job import PROGRAMS, Job, end, environment, launched
from support.faults.strike import PATIENCE, strike
from support.faults.trial import Trial
from support.stacks import CURRENT

LEAVING = 8.0
"""Seconds after the launchers' end in which the last processes have to go."""
LISTENING = "0A"
"""A TCP socket's state in /proc/net/tcp."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of a trial.

    Attributes:
        trial: the trial.
        way: the launcher.
        is_struck: whether the fault came before the run's end.
        codes: each launcher's exit code; None where it had to be killed.
        seconds: from the fault to the end of the last launcher.
        left: processes, sockets and files that are left.
        said: what each host has said.
        losses: what is wrong with the losses, of this run and what goes on from its checkpoint.
    """

    trial: Trial
    way: str
    is_struck: bool
    codes: tuple[int | None, ...]
    seconds: float
    left: tuple[str, ...]
    said: tuple[str, ...]
    losses: str


@dataclass(frozen=True, slots=True)
class Result:
    """A trial's verdict, as it is kept.

    Attributes:
        trial: the trial.
        way: the launcher.
        is_struck: whether the fault came before the run's end.
        codes: each launcher's exit code.
        seconds: from the fault to the end of the last launcher.
        wrong: why, by the name of each check that didn't hold.
    """

    trial: Trial
    way: str
    is_struck: bool
    codes: tuple[int | None, ...]
    seconds: float
    wrong: Mapping[str, str]


def result_of(
    trial: Trial, way: str = "safe-launch", slowness: float = 1.0
) -> tuple[Result, Observed]:
    """Runs a trial; its verdict, and all that was observed.

    Args:
        trial: the trial.
        way: the launcher.
        slowness: how many times as long everything may take.
    """
    seen = observed(trial, way, slowness)
    seconds = round(seen.seconds, 2)
    return Result(trial, way, seen.is_struck, seen.codes, seconds, wrong(seen)), seen


def wrong(seen: Observed) -> dict[str, str]:
    """Why, by the name of each check that doesn't hold."""
    return {name: why for name, check in CHECKS.items() if (why := check(seen))}


def observed(trial: Trial, way: str, slowness: float) -> Observed:
    """Runs a trial."""
    with launched(trial, way) as job:
        found = strike(job)
        struck = time.monotonic() if found is None else found
        limit = struck + slowness * allowed(trial, way).seconds
        if found is None and not job.has_ended:
            limit = struck  # the moment has never come
        codes = tuple(_code(process, limit) for process in job.processes)
        seconds = time.monotonic() - struck
        left = _left(job, time.monotonic() + slowness * LEAVING) if None not in codes else ()
        said = job.said()
        if None in codes:
            end(job)
        wrong = _losses(job, codes)
        return Observed(trial, way, found is not None, codes, seconds, left, said, wrong)


def _code(process: subprocess.Popen[str], limit: float) -> int | None:
    try:
        return process.wait(max(0.05, limit - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _left(job: Job, limit: float) -> tuple[str, ...]:
    """What the job leaves on its hosts, and in the folders that are everybody's.

    The kernel closes a killed process's sockets after its first thread has ended.
    """
    while (found := _found(job)) and time.monotonic() < limit:
        time.sleep(0.05)
    return found


def _found(job: Job) -> tuple[str, ...]:
    found = [f"tmp/{path.name}" for path in (job.folder / "tmp").iterdir()]
    for host in job.hosts:
        found += [f"process {process.name()}" for process in host.processes()]
        holder = Path(f"/proc/{host.holder}")
        found += [f"/dev/shm/{name}" for name in os.listdir(holder / "root/dev/shm")]
        for table in ("tcp", "tcp6"):
            rows = (holder / "net" / table).read_text().splitlines()[1:]
            found += [f"port {row.split()[1]}" for row in rows if row.split()[3] == LISTENING]
        rows = (holder / "net/unix").read_text().splitlines()[1:]
        found += [f"socket {row.split()[7]}" for row in rows if len(row.split()) > 7]
    return tuple(found)


def _losses(job: Job, codes: tuple[int | None, ...]) -> str:
    """What is wrong with the losses once the training has been carried to its end."""
    has_ended_well = set(codes) == {0}
    if not has_ended_well and job.trial.moment in ("start", "imports"):
        return ""  # it has saved nothing
    if not has_ended_well:
        if (disk := job.disk()) is not None:
            (disk / "ballast").unlink(missing_ok=True)
        last = ("timeout", "--signal=KILL", f"{PATIENCE:g}")
        last += _alone(job.trial.program, job.folder / "out")
        alone = subprocess.run(
            job.hosts[0].command(*last, cwd=job.folder),
            env={name: value for name, value in environment(job).items() if name != "MARKS"},
            capture_output=True,
            text=True,
            check=False,
        )
        if alone.returncode:
            return f"the training doesn't go on ({alone.returncode}): {alone.stderr[-600:]}"
    found, expected = losses(job.folder / "out.losses"), reference(job.trial.program)
    wrong = {
        step: found.get(step)
        for step, loss in expected.items()
        if not math.isclose(found.get(step, math.nan), loss, rel_tol=1e-4)
    }
    return f"{wrong} instead of {expected}" if wrong else ""


def losses(path: Path) -> dict[int, float]:
    """The last loss of each step; a line may be cut off by a kill."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.endswith("}"):
            told = json.loads(line)
            found[told["step"]] = told["loss"]
    return found


@functools.cache
def reference(program: str) -> Mapping[int, float]:
    """The losses of the same training by itself, without a launcher."""
    with TemporaryDirectory(prefix="faults-") as name:
        (folder := Path(name) / "out").mkdir()
        command = [str(part) for part in _alone(program, folder)]
        subprocess.run(command, env=CURRENT.environment(), capture_output=True, check=True)
        return losses(Path(name) / "out.losses")


def _alone(program: str, folder: Path) -> tuple[object, ...]:
    return CURRENT.bin / "python", PROGRAMS / f"{program}.py", folder


def _bound(seen: Observed) -> str:
    if None in seen.codes and not seen.is_struck:
        return f"the moment hasn't come within {PATIENCE:g} s"
    return f"still running {seen.seconds:.0f} s after the fault" if None in seen.codes else ""


def _codes(seen: Observed) -> str:
    if not seen.is_struck:
        return "" if set(seen.codes) <= {0, None} else f"{seen.codes} before the fault"
    pairs = zip(seen.codes, allowed(seen.trial, seen.way).codes, strict=True)
    is_allowed = all(code is None or code in codes for code, codes in pairs)
    return "" if is_allowed else f"{seen.codes}"


def _named(seen: Observed) -> str:
    pattern = allowed(seen.trial, seen.way).named
    if not pattern or not seen.is_struck or set(seen.codes) <= {0, None}:
        return ""
    own = "\n".join(seen.said)
    if seen.way == "safe-launch":
        lines = [line for line in own.splitlines() if line.startswith("[safe-launch]")]
        own = " ".join(" ".join(lines).replace("[safe-launch]", "").split())
    return "" if re.search(pattern, own) else f"nothing like {pattern!r}"


def _left_over(seen: Observed) -> str:
    return ", ".join(sorted(set(seen.left)))


TRACEBACKS = {
    "safe-launch": r"safe-launch itself failed|Exception ignored in: <_io"
    r"|File \"[^\"]*/launcher/[^\"]*\"",
    "torchrun": r"File \"[^\"]*/torch/distributed/(run|launcher|elastic)\b[^\"]*\"",
}


def _traceback(seen: Observed) -> str:
    found = re.search(TRACEBACKS[seen.way], "\n".join(seen.said))
    return found[0] if found else ""


CHECKS: dict[str, Callable[[Observed], str]] = {
    "ended within its time": _bound,
    "exit code": _codes,
    "who it was": _named,
    "nothing left": _left_over,
    "no traceback of the launcher's": _traceback,
    "checkpoint and losses": lambda seen: seen.losses,
}
"""What must hold; each says why it doesn't, or nothing."""
