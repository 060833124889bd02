"""Provokes known failures with the real frameworks: one script each, forked from warm imports.

    python tests/support/reproduce.py [--advised] [--verbose] ID...

runs `tests/reproductions/ID.py` on its ranks with the frameworks of this Python and says what each
rank died of and which entry explains it. The scripts are ordinary training scripts; `--advised`
makes them follow the entry's advice. They may set, at their top level:

    RANKS = 2           how many ranks
    STACKS = ("current", "older")   environments in which the failure lives
    FRESH = False       whether it needs an interpreter that has imported nothing yet
    SECONDS = 60        how long it may take
"""

from __future__ import annotations

import argparse
import ast
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
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

if __name__ == "__main__":  # in a Python that has no pytest
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from support.ports import free_port

FOLDER = Path(__file__).resolve().parents[1] / "reproductions"
PRELOADED = ("torch", "torch.distributed", "deepspeed", "transformers", "peft", "accelerate")
FRAMEWORKS = ("torch", "deepspeed", "transformers", "peft", "accelerate")
FOLLOW = 15.0
"""Seconds that the other ranks have after the first one has ended."""


@dataclass(frozen=True)
class Script:
    """A reproduction and what it says of itself."""

    path: Path
    ranks: int = 2
    stacks: tuple[str, ...] = ("current", "older")
    fresh: bool = False
    seconds: float = 60

    @property
    def id(self) -> str:
        """The known failure that it provokes."""
        return self.path.stem


def read_script(path: Path) -> Script:
    """The script's own settings, read without running it."""
    names = {"RANKS": "ranks", "STACKS": "stacks", "FRESH": "fresh", "SECONDS": "seconds"}
    said = {
        names[target.id]: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    }
    return Script(path, **said)


def scripts() -> tuple[Script, ...]:
    """All reproductions by name."""
    return tuple(read_script(path) for path in sorted(FOLDER.glob("*.py")))


def run(script: Script, arguments: Sequence[str]) -> dict[str, object]:
    """Runs a reproduction to its end.

    Returns:
        `records`: the failed ranks' records as mappings; `outputs`: what each rank printed;
        `codes`: exit codes, -N for signal N; `completed`: the ranks whose script has run to its
        end; `versions` of the frameworks.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = free_port()
        start = _start_fresh if script.fresh else _fork
        pids = {
            start(script, list(arguments), rank, port, folder): rank for rank in range(script.ranks)
        }
        codes = _waited(pids, time.monotonic() + script.seconds)
        outputs = [
            (folder / f"{rank}.log").read_text(errors="replace") for rank in range(script.ranks)
        ]
        records = [
            _record_of(rank, code, outputs[rank], folder / f"{rank}.json")
            for rank, code in codes.items()
            if code
        ]
        completed = [
            rank for rank in range(script.ranks) if _completion(folder / f"{rank}.json").exists()
        ]
    return {
        "id": script.id,
        "records": records,
        "outputs": outputs,
        "codes": codes,
        "completed": completed,
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in FRAMEWORKS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _variables(script: Script, rank: int, port: int, folder: Path) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(script.ranks),
        "LOCAL_WORLD_SIZE": str(script.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "REPRODUCTION_RECORD": str(folder / f"{rank}.json"),
    }


def _fork(script: Script, arguments: list[str], rank: int, port: int, folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(_variables(script, rank, port, folder))
    os.chdir(folder)
    code = _executed(script.path, arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start_fresh(script: Script, arguments: list[str], rank: int, port: int, folder: Path) -> int:
    command = [sys.executable, __file__, "--as-rank", str(script.path), *arguments]
    with (folder / f"{rank}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **_variables(script, rank, port, folder)},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    process.returncode = 0  # waited for by its pid, like a forked one
    return process.pid


def _executed(path: Path, arguments: list[str]) -> int:
    """Runs the script as `__main__`; leaves a record of what it raises, as a worker would."""
    from safe_launch import worker

    show: Callable[..., object] = traceback.print_exception
    try:
        worker.run_script(str(path), arguments)
    except SystemExit as leaving:
        code = worker.exit_code_of(leaving)
        if code:
            _keep(leaving, code)
            return code
    except BaseException as error:
        _keep(error, 1)
        show(error)
        return 1
    _completion(Path(os.environ["REPRODUCTION_RECORD"])).touch()
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

    first = from_exception.first_record(error, int(os.environ["RANK"]), time.monotonic(), code)
    record = from_exception.full_record(error, first, Observations())
    Path(os.environ["REPRODUCTION_RECORD"]).write_text(json.dumps(record, default=plain))


def _waited(pids: dict[int, int], end: float) -> dict[int, int]:
    """Exit codes by rank; once one rank has ended the others have little time left."""
    codes: dict[int, int] = {}
    while len(codes) < len(pids):
        for pid, rank in pids.items():
            if rank not in codes and (done := os.waitpid(pid, os.WNOHANG))[0]:
                codes[rank] = os.waitstatus_to_exitcode(done[1])
                end = min(end, time.monotonic() + FOLLOW)
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


def _record_of(rank: int, code: int, output: str, path: Path) -> dict[str, object]:
    """What the rank left of itself; without a record, how it ended."""
    told = json.loads(path.read_text()) if path.exists() else {"rank": rank, "at": time.monotonic()}
    told["log_tail"] = output.splitlines()[-60:]
    if not path.exists():
        told["exit_code"] = code if code > 0 else 128 - code
        told["signal"] = -code if code < 0 else None
    return told


def serve() -> None:
    """Answers requests on stdin, a line of JSON each, until it is closed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _preload()
    for line in sys.stdin:
        asked = json.loads(line)
        script = read_script(Path(asked["script"]))
        print(json.dumps(run(script, asked["arguments"])), file=answers, flush=True)


def _preload() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    importlib.import_module("safe_launch.worker")
    if hasattr(sys.modules["transformers"], "Trainer"):
        importlib.import_module("transformers.trainer")


def main() -> None:
    """The command line of people."""
    if sys.argv[1:2] == ["--as-rank"]:
        sys.exit(_executed(Path(sys.argv[2]), sys.argv[3:]))
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--advised", action="store_true", help="follow the entry's advice")
    parser.add_argument("--verbose", action="store_true", help="show what the ranks printed")
    parser.add_argument("ids", nargs="+")
    options = parser.parse_args()
    _preload()
    from safe_launch.catalogue.reader import concerns, read_catalogue
    from safe_launch.diagnosis.root_cause import diagnose
    from safe_launch.evidence.worker_receiver import record_of

    catalogue = [one for one in read_catalogue() if concerns(one, _versions())]
    for name in options.ids:
        result = run(read_script(FOLDER / f"{name}.py"), ["--advised"] * options.advised)
        records = [record_of(one) for one in result["records"]]  # type: ignore[attr-defined]
        print(f"{name}: exit codes {result['codes']}")
        for finding in diagnose(records, catalogue).findings:
            one = finding.record
            entry = finding.entry.id if finding.entry else "NOTHING KNOWN"
            print(
                f"  rank {one.rank}: {finding.role}: {entry}: {one.exception} {one.message[:160]!r}"
            )
            if one.frames:
                frame = one.frames[-1]
                print(f"    raised in {frame.file}:{frame.line} {frame.function}: {frame.source}")
        if options.verbose:
            for rank, output in enumerate(result["outputs"]):  # type: ignore[arg-type]
                print(f"--- rank {rank}\n{output}")


if __name__ == "__main__":
    main()
