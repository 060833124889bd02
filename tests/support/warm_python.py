"""A Python of one stack with warm imports: the ranks of a training are forked from it.

So a training takes about as long as its own work. The ranks have torchrun's variables, and run the
script as a worker of ours does, without a launcher.

As a program (`--serve`) it answers requests on stdin, a line of JSON each, until it is closed.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

if __name__ == "__main__":  # in a Python that has no pytest
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from support.ports import held_port
from support.stacks import Stack

PRELOADED = ("torch", "torch.distributed", "deepspeed", "transformers", "peft", "accelerate")
FRAMEWORKS = ("torch", "deepspeed", "transformers", "peft", "accelerate")


@dataclass(frozen=True)
class Training:
    """A script and how it is run.

    Attributes:
        script: its path.
        arguments: its own.
        ranks: how many run it; 0 is a single process that isn't told of any.
        folder: in which it runs; a temporary one where there is none.
        fresh: whether it needs interpreters that have imported nothing yet.
        seconds: after which it is killed.
        grace: seconds that are left once one rank has failed, or all have run to their ends.
    """

    script: str
    arguments: Sequence[str] = ()
    ranks: int = 0
    folder: str | None = None
    fresh: bool = False
    seconds: float = 600
    grace: float = 15


@dataclass(frozen=True)
class Ended:
    """What became of a training.

    Attributes:
        codes: exit codes by rank, -N for signal N.
        outputs: what each rank printed.
        records: of the failed ranks, as mappings.
        completed: ranks whose script has run to its end.
        versions: of the frameworks.
    """

    codes: dict[int, int]
    outputs: list[str]
    records: list[dict[str, Any]]
    completed: list[int]
    versions: dict[str, str]


class WarmPython:
    """The server of a stack, as a test sees it; not for two threads at once."""

    def __init__(self, stack: Stack) -> None:
        self.process = subprocess.Popen(
            [str(stack.bin / "python"), __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=stack.environment(),
            text=True,
        )

    def run(self, training: Training) -> Ended:
        """Runs a training to its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asdict(training)), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        codes = {int(rank): code for rank, code in answer.pop("codes").items()}
        return Ended(codes=codes, **answer)

    def close(self) -> None:
        """Ends the server."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@functools.cache
def warm(stack: Stack) -> WarmPython:
    """The server of a stack in this process; it ends with us, as its stdin is closed then."""
    return WarmPython(stack)


def run(training: Training) -> Ended:
    """Runs a training in forks of this process, which has to have warm imports."""
    ranks = max(training.ranks, 1)
    with tempfile.TemporaryDirectory() as name, held_port() as holder:
        own, port = Path(name), holder.getsockname()[1]
        start = _start_fresh if training.fresh else _fork
        pids = {start(training, rank, port, own): rank for rank in range(ranks)}
        codes = _waited(pids, training, own)
        outputs = [(own / f"{rank}.log").read_text(errors="replace") for rank in range(ranks)]
        return Ended(
            codes,
            outputs,
            [
                _record_of(rank, code, outputs[rank], own / f"{rank}.json")
                for rank, code in codes.items()
                if code
            ],
            [rank for rank in range(ranks) if _completion(own / f"{rank}.json").exists()],
            versions(),
        )


def versions() -> dict[str, str]:
    """The installed versions of the frameworks."""
    found = {}
    for name in FRAMEWORKS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def preload() -> None:
    """Imports what trainings import."""
    for name in PRELOADED:
        importlib.import_module(name)
    importlib.import_module("safe_launch.worker")
    if hasattr(sys.modules["transformers"], "Trainer"):
        importlib.import_module("transformers.trainer")


def _variables(training: Training, rank: int, port: int, own: Path) -> dict[str, str]:
    record = {"RANK_RECORD": str(own / f"{rank}.json")}
    if not training.ranks:
        return record
    return record | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(training.ranks),
        "LOCAL_WORLD_SIZE": str(training.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _fork(training: Training, rank: int, port: int, own: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    log = os.open(own / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(_variables(training, rank, port, own))
    os.chdir(training.folder or own)
    code = _executed(training.script, training.arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start_fresh(training: Training, rank: int, port: int, own: Path) -> int:
    command = [sys.executable, __file__, "--as-rank", training.script, *training.arguments]
    with (own / f"{rank}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **_variables(training, rank, port, own)},
            cwd=training.folder or own,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    process.returncode = 0  # waited for by its pid, like a forked one
    return process.pid


def _executed(script: str, arguments: Sequence[str]) -> int:
    """Runs the script as `__main__`; leaves a record of what it raises, as a worker would."""
    from safe_launch import worker

    show: Callable[..., object] = traceback.print_exception
    sys.path[0] = str(Path(script).parent)
    try:
        worker.make_main(script)
        worker.run_script(script, list(arguments))
    except SystemExit as leaving:
        code = worker.exit_code_of(leaving)
        if code:
            _keep(leaving, code)
            return code
    except BaseException as error:
        _keep(error, 1)
        show(error)
        return 1
    _completion(Path(os.environ["RANK_RECORD"])).touch()
    return 0


def _completion(record: Path) -> Path:
    """The file that a rank leaves whose script has run to its end, beside what would be its record.

    gloo sometimes aborts after that, when the process ends: its exit code doesn't tell.
    """
    return record.with_suffix(".completed")


def _keep(error: BaseException, code: int) -> None:
    from safe_launch.core.plain_json import plain
    from safe_launch.evidence import from_exception
    from safe_launch.evidence.observations import Observations

    rank = int(os.environ.get("RANK", "0"))
    first = from_exception.first_record(error, rank, time.monotonic(), code)
    record = from_exception.full_record(error, first, Observations())
    Path(os.environ["RANK_RECORD"]).write_text(json.dumps(record, default=plain))


def _waited(pids: dict[int, int], training: Training, own: Path) -> dict[int, int]:
    """Exit codes by rank.

    Once one rank has failed the others have little time left, and so has who has run to the end of
    its script: with gloo an interpreter may hang there.
    """
    end = time.monotonic() + training.seconds
    codes: dict[int, int] = {}
    while len(codes) < len(pids):
        for pid, rank in pids.items():
            if rank not in codes and (done := os.waitpid(pid, os.WNOHANG))[0]:
                codes[rank] = os.waitstatus_to_exitcode(done[1])
        left = [rank for rank in pids.values() if rank not in codes]
        if any(codes.values()) or all(_completion(own / f"{rank}.json").exists() for rank in left):
            end = min(end, time.monotonic() + training.grace)
        if time.monotonic() > end:
            for pid, rank in pids.items():
                if rank not in codes:
                    _kill(pid)
            end = float("inf")
        time.sleep(0.02)
    return codes


def _kill(pid: int) -> None:
    """Kills a rank and all that it has started: a compiler has a session of its own."""
    rank = psutil.Process(pid)
    for process in (*rank.children(recursive=True), rank):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _record_of(rank: int, code: int, output: str, path: Path) -> dict[str, Any]:
    """What the rank left of itself; without a record, how it ended."""
    told = json.loads(path.read_text()) if path.exists() else {"rank": rank, "at": time.monotonic()}
    told["log_tail"] = output.splitlines()[-60:]
    if not path.exists():
        told["exit_code"] = code if code > 0 else 128 - code
        told["signal"] = -code if code < 0 else None
    return told


def main() -> None:
    """The server, or one rank that isn't forked."""
    if sys.argv[1] == "--as-rank":
        sys.exit(_executed(sys.argv[2], sys.argv[3:]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    preload()
    for line in sys.stdin:
        print(json.dumps(asdict(run(Training(**json.loads(line))))), file=answers, flush=True)


if __name__ == "__main__":
    main()
