"""What torch's own tests of its launcher cover of what users see, as cases for any launcher.

The cases follow test/distributed/launcher/test_run.py and launch_test.py, and those of
test/distributed/elastic for output, signals, restarts and error files, in PyTorch's repository.
`scripts/launcher-checklist` writes docs/measured/launcher-checklist.md from what the runs give.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.launches import WAYS, environment
from support.ports import free_port
from support.stacks import CURRENT, ROOT
from support.waiting import LONG, wait_for

PROGRAMS = ROOT / "tests" / "programs"
SCRIPT = str(PROGRAMS / "checks.py")
TAKES_RANK = str(PROGRAMS / "checks_rank.py")
SHELL = str(PROGRAMS / "checks.sh")


@dataclass(frozen=True)
class Case:
    """One thing that a user sees of a launcher.

    Attributes:
        name: what it is.
        command: options, script and arguments; PORT stands for a free port, FOLDER for where it
            runs.
        variables: of the launcher's environment.
        send: a signal for the launcher when all workers are ready.
        ready: how many workers that are.
        launchers: how many of them take part, each with this command.
        shows: pattern of what is looked for in the launcher's output.
        differs: why ours does otherwise, on purpose; empty where it must do the same.
        module: torch's module that is run instead of torchrun.
    """

    name: str
    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    send: signal.Signals | None = None
    ready: int = 2
    launchers: int = 1
    shows: str = ""
    differs: str = ""
    module: str = ""


FOUR = ("--nnodes=1", "--nproc-per-node=4")
TWO = ("--nnodes=1", "--nproc-per-node=2")
ELASTIC = (
    "--nnodes=1:2",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=localhost:PORT",
    "--rdzv-id=one",
    "--nproc-per-node=2",
)
TIMES = "--rdzv-conf=join_timeout=600,timeout=600,last_call_timeout="
ITS_OWN_CODE = "a failed worker's own exit code is ours, 128 + N for signal N"
STOPPED = "stopped by signal N we end with 128 + N, as shells expect"
AS_TORCHRUN = "as under torchrun, a script gets its own arguments: add `--local-rank=${local_rank}`"
CASES = (
    Case("a script on four workers", (*FOUR, "--rdzv-id=x", "--monitor-interval=1", SCRIPT)),
    Case("one worker if nothing is said", ("--rdzv-id=x", SCRIPT)),
    Case("--start-method=spawn", (*TWO, "--start-method=spawn", SCRIPT)),
    Case("underscores", ("--nnodes=1", "--nproc_per_node=2", "--rdzv_id=x", SCRIPT)),
    Case(
        "--master-addr, --master-port, --node-rank",
        (*TWO, "--master-addr=localhost", "--master-port=PORT", "--node-rank=0", SCRIPT),
    ),
    Case("--standalone", (*TWO, "--standalone", SCRIPT)),
    Case("--run-path", ("--run-path", *TWO, SCRIPT)),
    Case("--no-python, a shell script", (*TWO, "--no-python", SHELL), shows="creating [0-9]"),
    Case("--no-python with --module", (*TWO, "--no-python", "--module", SHELL)),
    Case(
        "variables PET_*",
        (SHELL,),
        {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_NO_PYTHON": "1", "PET_MODULE": "0"},
    ),
    Case("PET_NO_PYTHON with PET_MODULE", (SHELL,), {"PET_NO_PYTHON": "1", "PET_MODULE": "1"}),
    Case("the command line before PET_*", (*TWO, SCRIPT), {"PET_NPROC_PER_NODE": "4"}),
    Case("--nproc-per-node=auto without a GPU", ("--nproc-per-node=auto", SCRIPT)),
    Case("--nproc-per-node=cpu", ("--nproc-per-node=cpu", SCRIPT)),
    Case("--nproc-per-node=gpu without a GPU", ("--nproc-per-node=gpu", SCRIPT)),
    Case("--nproc-per-node=unknown", ("--nproc-per-node=unknown", SCRIPT)),
    Case("--nnodes=2:20:30", ("--nnodes=2:20:30", SCRIPT)),
    Case("--nnodes=1:2, one node comes", (*ELASTIC, f"{TIMES}1", SCRIPT)),
    Case(
        "--nnodes=1:2, two launchers on one host",
        (*ELASTIC, f"{TIMES}300", SCRIPT),  # both have come long before
        launchers=2,
    ),
    Case("--role", (*TWO, "--role=trainer", SCRIPT)),
    Case("torch.distributed.is_torchelastic_launched()", (*TWO, SCRIPT, "elastic")),
    Case("a process group by env://", (*FOUR, SCRIPT, "sum", "env://")),
    Case("a process group by what is default", (*FOUR, SCRIPT, "sum")),
    Case(
        "a process group by tcp:// at --master-port",
        (
            *TWO,
            "--master-addr=localhost",
            "--master-port=PORT",
            *(SCRIPT, "sum", "tcp://localhost:PORT"),
        ),
    ),
    Case(
        "torch.distributed.launch: --local-rank for the script",
        (*TWO, TAKES_RANK),
        module="torch.distributed.launch",
        differs=AS_TORCHRUN,
    ),
    Case("a worker raises", (SCRIPT, "raises"), shows="ValueError: the bug of the script"),
    Case("a worker under @record raises", (SCRIPT, "record"), shows="the bug of the script"),
    Case("a worker ends with 42", (SCRIPT, "exits", "42"), differs=ITS_OWN_CODE),
    Case("a worker is killed", (SCRIPT, "dies", "SIGKILL"), differs=ITS_OWN_CODE),
    Case("--max-restarts=1, fails once", (*TWO, "--max-restarts=1", SCRIPT, "once")),
    Case("--max-restarts=0, fails once", (SCRIPT, "once"), differs=ITS_OWN_CODE),
    Case(
        "--tee=3 with a prefix of one's own",
        (*TWO, "--redirects=3", "--tee=3", "--log-dir=FOLDER/logs", SCRIPT, "prints"),
        {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "},
        shows=r"\[rank\d\]: (?:out|err) \d",
    ),
    Case(
        "--tee=3, torchrun's prefix",
        (*TWO, "--tee=3", "--log-dir=FOLDER/logs", SCRIPT, "prints"),
        shows=r"\[\w+\]:(?:out|err) \d",
    ),
    Case(
        "--redirects=3 shows nothing",
        (*TWO, "--redirects=3", "--log-dir=FOLDER/logs", SCRIPT, "prints"),
        shows=r"(?:out|err) \d",
    ),
    Case(
        "--redirects by rank",
        (*TWO, "--redirects=0:3,1:0", "--log-dir=FOLDER/logs", SCRIPT, "prints"),
        shows=r"(?:out|err) \d",
    ),
    Case(
        "--local-ranks-filter",
        (*TWO, "--tee=3", "--local-ranks-filter=1", "--log-dir=FOLDER/logs", SCRIPT, "prints"),
        shows=r"(?:out|err) \d",
    ),
    Case("--logs-specs=default", (*TWO, "--logs-specs=default", SCRIPT)),
    Case("--logs-specs of nobody", (*TWO, "--logs-specs=nobodys", SCRIPT)),
    Case("--log-dir that is a file", ("--log-dir=FOLDER/a-file", "--tee=3", SCRIPT)),
    Case("SIGTERM", (*TWO, SCRIPT, "waits"), send=signal.SIGTERM, differs=STOPPED),
    Case("SIGINT", (*TWO, SCRIPT, "waits"), send=signal.SIGINT, differs=STOPPED),
    Case(
        "SIGUSR1 in --signals-to-handle",
        (*TWO, "--signals-to-handle=SIGTERM,SIGUSR1", SCRIPT, "waits"),
        send=signal.SIGUSR1,
        differs="we hand it on to the workers, which go on; torchrun ends them with it",
    ),
)


def observed(case: Case, way: str, folder: Path) -> str:
    """What a user sees of a case under a launcher, in a line."""
    (folder / "a-file").touch()
    port = str(free_port())
    words = [one.replace("PORT", port).replace("FOLDER", str(folder)) for one in case.command]
    start = WAYS[way]
    if way == "torchrun" and case.module:
        start = (str(CURRENT.bin / "python3"), "-m", case.module)
    own = () if way == "torchrun" or "--log-dir" in " ".join(words) else (f"--log-dir={folder}/l",)
    output = folder / "output"
    with output.open("w") as file:
        launchers = [
            subprocess.Popen(
                [*start, *own, *words],
                cwd=folder,
                env=environment(
                    SENTINEL="seen", LOGLEVEL=None, OMP_NUM_THREADS=1, **case.variables
                ),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            for _ in range(case.launchers)
        ]
        try:
            if case.send is not None:
                wait_for(lambda: len([*folder.glob("ran-*")]) >= case.ready)
                launchers[0].send_signal(case.send)
            codes = [one.wait(LONG) for one in launchers]
        except subprocess.TimeoutExpired:
            return "hangs"
        finally:
            for one in launchers:
                one.terminate()
                one.wait()
    return _told(case, codes, folder, output.read_text(errors="replace"))


def _told(case: Case, codes: list[int], folder: Path, output: str) -> str:
    """A run in a line: its code, what the workers were told, what was shown."""
    ran = sorted(folder.glob("ran-*"), key=lambda one: int(one.name.partition("-")[2]))
    if any(codes) and not ran:
        return "refused"
    code = max(abs(one) for one in codes)
    parts = ["succeeds" if code == 0 else f"fails with {code}"]
    parts += [f"`{one.read_text().strip()}`" for one in ran]
    if case.shows:
        found = sorted(set(re.findall(case.shows, output)))
        parts.append(f"shows {', '.join(found) or 'nothing'}")
    return "; ".join(parts)


def run(case: Case, way: str, folder: Path) -> str:
    """`observed` in a fresh folder, which is gone afterwards."""
    folder.mkdir(parents=True)
    try:
        return observed(case, way, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def page(rows: Mapping[str, tuple[str, str]]) -> str:
    """The document: what both launchers did in each case."""
    lines = [
        "# torchrun's own tests of its launcher, as a checklist",
        "",
        "Written by `scripts/launcher-checklist`, which runs every case under both launchers;",
        "`tests/processes/test_launcher_checklist.py` holds them. The cases follow what torch's",
        "tests of its launcher cover of what users see (test/distributed/launcher and",
        "test/distributed/elastic in PyTorch's repository); those of its Python interfaces are",
        "left out. Between back quotes",
        "is what each worker was told: rank, world size, local rank, local world size, group rank,",
        "group world size, role rank, role world size, role, a variable of the parent's, and what",
        'the case adds. "Refused" is an end with an error before any worker.',
        "",
        "| case | torchrun | safe-launch | |",
        "|---|---|---|---|",
    ]
    for case in CASES:
        if case.name in rows:
            theirs, ours = rows[case.name]
            same = "the same" if ours == theirs else ours
            lines.append(
                f"| {case.name} | {theirs} | {same} | {case.differs} |".replace("|  |", "| |")
            )
    return "\n".join(lines) + "\n"
