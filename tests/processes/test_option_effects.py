"""Effects of the options of torchrun and deepspeed on real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safe_launch.machine.host import physical_cores
from support.hosts import needs_hosts, network
from support.jobs import ended, job
from support.ports import free_port
from support.processes import (
    LAUNCHER,
    PROGRAMS,
    TORCHRUN,
    begin,
    environment,
    launch,
)
from support.stacks import CURRENT, ROOT
from support.waiting import wait_for

SHOWS = PROGRAMS / "shows.py"
DEEPSPEED = str(CURRENT.bin / "deepspeed")
OURS = ("SAFE_LAUNCH_",)
ALWAYS_ELSE = {
    *("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "PWD", "_"),
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
}
"""Variables that differ between any two launches, or that belong to other options."""


def seen(folder: Path, rank: int = 0) -> dict[str, Any]:
    """The record of a rank of `shows.py`."""
    found: dict[str, Any] = json.loads((folder / f"seen-{rank}.json").read_text())
    return found


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The launcher's output, as one line."""
    own = [one for one in done.stderr.splitlines() if one.startswith("[safe-launch]")]
    return " ".join(" ".join(own).replace("[safe-launch]", "").split())


def logs(folder: Path, attempt: int = 1) -> Path:
    """The attempt folder of the only run."""
    (run,) = (folder / "runs").iterdir()
    return run / f"attempt-{attempt}"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_find_what_torchrun_gives_them(workshop: Path, method: str) -> None:
    """All torchrun variables with its values, and besides only deepspeed's and ours."""
    command = ("--nproc-per-node=2", "--max-restarts=2", "--role=trainer", SHOWS)
    done = launch(workshop, *command, command=TORCHRUN)
    assert done.returncode == 0, done.stderr
    theirs = [seen(workshop, rank)["environment"] for rank in range(2)]
    done = launch(workshop, f"--start-method={method}", *command)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        ours = seen(workshop, rank)["environment"]
        more = {name for name in ours.keys() - theirs[rank] if not name.startswith(OURS)}
        assert theirs[rank].keys() - ours.keys() == set()
        assert more == {"CROSS_RANK", "CROSS_SIZE"}
        for name in theirs[rank].keys() - ALWAYS_ELSE:
            assert ours[name] == theirs[rank][name], name
        assert Path(ours["TORCHELASTIC_ERROR_FILE"]).parent == logs(workshop)
        handled = ours["TORCHELASTIC_SIGNALS_TO_HANDLE"].split(",")
        assert {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"} <= set(handled)


def test_workers_find_what_deepspeed_gives_them(workshop: Path) -> None:
    """The variables of its launcher, with its values."""
    done = launch(workshop, "--num_gpus=2", "--no_local_rank", SHOWS, command=DEEPSPEED)
    assert done.returncode == 0, done.stderr
    theirs = [seen(workshop, rank)["environment"] for rank in range(2)]
    assert launch(workshop, "--num_gpus=2", "--no_local_rank", SHOWS).returncode == 0
    for rank in range(2):
        ours = seen(workshop, rank)["environment"]
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"):
            assert ours[name] == theirs[rank][name], name


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_local_rank_in_an_argument(workshop: Path, method: str) -> None:
    """`${local_rank}` is expanded as by torchrun; `$$` is a dollar sign."""
    words = ("--out=r${local_rank}", "$$x", "$HOME", "${other}")
    assert launch(workshop, "--nproc-per-node=2", SHOWS, *words, command=TORCHRUN).returncode == 0
    theirs = [seen(workshop, rank)["argv"] for rank in range(2)]
    assert launch(workshop, f"--start-method={method}", "--nproc=2", SHOWS, *words).returncode == 0
    assert [seen(workshop, rank)["argv"] for rank in range(2)] == theirs
    assert theirs[1][0] == "--out=r1"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--num_gpus=2",), ["--local_rank=1", "a"]),
        (("--num_gpus=2", "--no_local_rank"), ["a"]),
        (("--nproc-per-node=2",), ["a"]),
    ],
)
def test_the_form_decides_on_the_local_rank(
    workshop: Path, options: tuple[str, ...], expected: list[str]
) -> None:
    """Deepspeed's form passes it as the first argument, torchrun's doesn't."""
    (workshop / "train.py").write_text(f"import runpy\nrunpy.run_path({str(SHOWS)!r})\n")
    launcher = TORCHRUN if "--nproc-per-node=2" in options else DEEPSPEED
    assert launch(workshop, *options, "train.py", "a", command=launcher).returncode == 0
    assert seen(workshop, 1)["argv"] == expected
    assert launch(workshop, *options, "train.py", "a").returncode == 0
    assert seen(workshop, 1)["argv"] == expected


@pytest.mark.parametrize(
    ("given", "expected"), [(None, ["0", "1"]), ("5,3", ["5", "3"]), ("5, 3,1", ["5", "3"])]
)
def test_a_device_of_ones_own(workshop: Path, given: str | None, expected: list[str]) -> None:
    """--virtual-local-rank works as in torchrun, for Ascend's devices, too."""
    visible = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    command = ("--nproc-per-node=2", "--virtual-local-rank", SHOWS, "${local_rank}")
    assert launch(workshop, *command, command=TORCHRUN, **visible).returncode == 0
    names = ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES")
    theirs = [[seen(workshop, rank)["environment"][one] for one in names] for rank in range(2)]
    assert [one[1] for one in theirs] == expected
    assert launch(workshop, *command, ASCEND_RT_VISIBLE_DEVICES="6,7", **visible).returncode == 0
    for rank in range(2):
        ours = seen(workshop, rank)
        assert [ours["environment"][one] for one in names] == theirs[rank]
        assert ours["environment"]["ASCEND_RT_VISIBLE_DEVICES"] == ("6", "7")[rank]
        assert ours["argv"] == [str(rank)]


def test_too_few_devices_for_each_to_have_one(workshop: Path) -> None:
    """Refused before the start, with the variable."""
    options = ("--nproc=2", "--virtual-local-rank")
    done = launch(workshop, *options, SHOWS, CUDA_VISIBLE_DEVICES="3")
    assert done.returncode == 64
    assert "--virtual-local-rank: 2 workers, but CUDA_VISIBLE_DEVICES=3" in said(done)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_cores_for_each_worker(workshop: Path) -> None:
    """In order, equal shares, and as many threads; a list is used as given."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    listed = f"--bind_core_list={cores[0]},{cores[1]}"
    options = ("--nproc=2", "--bind_cores_to_rank", listed)
    assert launch(workshop, *options, SHOWS, OMP_NUM_THREADS="7").returncode == 0
    for rank in range(2):
        assert seen(workshop, rank)["cores"] == [cores[rank]]
        assert seen(workshop, rank)["environment"]["OMP_NUM_THREADS"] == "1"
    options = ("--nproc=1", "--bind_cores_to_rank", listed)
    assert launch(workshop, *options, SHOWS).returncode == 0
    assert seen(workshop)["cores"] == cores
    assert seen(workshop)["environment"]["OMP_NUM_THREADS"] == "2"


def test_cores_of_this_process(tmp_path: Path) -> None:
    """One thread of each core, the first usable one, if the topology is known."""
    allowed = sorted(os.sched_getaffinity(0))
    assert physical_cores(tmp_path) == tuple(allowed)
    for number in allowed:
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0,64\n")
    assert physical_cores(tmp_path) == (allowed[0],)


@pytest.mark.parametrize(
    ("options", "variables", "problem"),
    [
        (("--nproc=2", "--bind_core_list=0"), {}, "2 workers can't share 1 core"),
        (("--nproc=1", "--bind_core_list=4000"), {}, "core 4000 isn't among those"),
        (("--nproc=1",), {"KMP_AFFINITY": "none"}, "--bind_cores_to_rank and KMP_AFFINITY both"),
        (("--no_python",), {}, "--no-python and --bind_cores_to_rank can't go together"),
    ],
)
def test_cores_that_cant_be_shared(
    workshop: Path, options: tuple[str, ...], variables: dict[str, str], problem: str
) -> None:
    """Each has a reason, before the start."""
    done = launch(workshop, *options, "--bind_cores_to_rank", SHOWS, **variables)
    assert done.returncode == 64
    assert problem in said(done)
    assert not (workshop / "seen-0.json").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--numa-binding=node",), "--numa-binding node"),
        (("--no-python",), f"{SHOWS.name}"),
        (("--no-python", "-m"), "--no-python and --module can't go together"),
        (("--run-path", "-m"), "--run-path and --module can't go together"),
        (("--enable_each_rank_log=file",), "isn't a folder"),
        (("--shutdown-timeout=-1",), "a time can't be negative"),
    ],
)
def test_what_cant_be_done_here(workshop: Path, options: tuple[str, ...], problem: str) -> None:
    """Reported before the start; there is no GPU, and the script isn't executable."""
    (workshop / "file").touch()
    done = launch(workshop, *options, SHOWS)
    assert done.returncode == 64
    assert problem in said(done)
    assert "Traceback" not in done.stderr


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    """An executable file."""
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_program_that_isnt_python(workshop: Path, method: str) -> None:
    """It runs with a worker's environment; its code and output are unchanged."""
    program(workshop / "run.sh", '#!/bin/sh\necho "rank $RANK of $WORLD_SIZE: $*"\nexit $RANK\n')
    options = (f"--start-method={method}", "--nproc=2", "--no-python", "--leave-timeout=0.5")
    done = launch(workshop, "-v", *options, "./run.sh", "a b", "l${local_rank}")
    assert done.returncode == 1
    assert "rank 1 of 2: a b l1" in done.stdout
    assert "its training can't be seen or corrected" in said(done)
    assert "rank 1 left with exit code 1" in said(done)
    assert (logs(workshop) / "rank-1.log").read_text() == "rank 1 of 2: a b l1\n"


def test_a_program_on_path(workshop: Path) -> None:
    """Found by name as by torchrun; a signal ends it."""
    done = launch(workshop, "--nproc=2", "--no_python", sys.executable, SHOWS, "x")
    assert done.returncode == 0, done.stderr
    assert seen(workshop, 1)["argv"] == ["x"]
    done = launch(workshop, "--no_python", "sh", "-c", "kill -9 $$$$")
    assert done.returncode == 137


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("#!/bin/sh\n", 0o644, "there is no program `./run`"),
        ("no first line\n", 0o755, "./run can't be executed: Exec format error"),
        ("#!/absent/sh\n", 0o755, "./run can't be executed: No such file or directory"),
    ],
)
def test_programs_that_cant_be_run(workshop: Path, text: str, mode: int, problem: str) -> None:
    """Code 64 and the reason, no traceback."""
    program(workshop / "run", text, mode)
    done = launch(workshop, "--nproc=2", "--no-python", "./run")
    assert done.returncode == 64
    assert problem in said(done)
    assert "Traceback" not in done.stderr


def test_a_script_by_its_path(workshop: Path) -> None:
    """--run-path is the ordinary run, also with --no-python, as in torchrun."""
    done = launch(workshop, "--run-path", "--no-python", "--nproc=1", SHOWS, "a")
    assert done.returncode == 0, done.stderr
    assert seen(workshop)["argv"] == ["a"]


def test_another_python(workshop: Path) -> None:
    """PYTHON_EXEC runs the workers, as under torchrun."""
    own = program(workshop / "python", f'#!/bin/sh\nBY=me exec {sys.executable} "$@"\n')
    done = launch(workshop, "--nproc=2", SHOWS, PYTHON_EXEC=own)
    assert done.returncode == 0, done.stderr
    assert seen(workshop, 1)["environment"]["BY"] == "me"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "python can't be executed: No such file or directory"),
        ("#!/bin/sh\nexit 1\n", "python: safe-launch isn't installed for it"),
    ],
)
def test_a_python_that_cant_run_workers(workshop: Path, text: str | None, problem: str) -> None:
    """Reported before the start."""
    if text is not None:
        program(workshop / "python", text)
    done = launch(workshop, SHOWS, PYTHON_EXEC=workshop / "python")
    assert done.returncode == 64
    assert problem in said(done)
    assert "Traceback" not in done.stderr


def test_streams_that_are_kept_from_the_console(workshop: Path) -> None:
    """-r by local rank; logs have everything, also in separate files."""
    done = launch(workshop, "--nproc=2", "-r", "0:3,1:1", SHOWS)
    assert done.returncode == 0
    assert done.stdout == ""
    assert "err 1" in done.stderr
    assert "err 0" not in done.stderr
    folder = logs(workshop)
    assert (folder / "rank-0.stdout.log").read_text() == "out 0\n"
    assert (folder / "rank-0.stderr.log").read_text() == "err 0\n"
    assert (folder / "rank-1.stdout.log").read_text() == "out 1\n"
    assert not (folder / "rank-1.stderr.log").exists()
    assert sorted((folder / "rank-1.log").read_text().split("\n")) == ["", "err 1", "out 1"]


def test_streams_with_the_rank_in_front(workshop: Path) -> None:
    """-t shows what -r hides, prefixed as by torchrun or a template; logs have no prefix."""
    options = ("--nproc=2", "-t", "1", "-r", "1", "--role=job", SHOWS)
    theirs = launch(workshop, *("--nproc-per-node=2", *options[1:]), command=TORCHRUN)
    done = launch(workshop, *options)
    assert sorted(done.stdout.splitlines()) == ["[job0]:out 0", "[job1]:out 1"]
    assert sorted(theirs.stdout.splitlines()) == sorted(done.stdout.splitlines())
    assert "\nerr 1\n" in done.stderr
    assert (logs(workshop) / "rank-1.stdout.log").read_text() == "out 1\n"
    template = "${role_name} ${rank}/${local_rank}> "
    done = launch(workshop, *options, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=template)
    assert sorted(done.stdout.splitlines()) == ["job 0/0> out 0", "job 1/1> out 1"]


def test_lines_in_pieces_have_one_prefix(workshop: Path) -> None:
    """Partial lines, progress bars with carriage returns, and no last newline."""
    text = (
        "import sys, time\n"
        "for piece in ('a', 'b\\n', 'c\\rd', '\\n', 'e'):\n"
        "    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.2)\n"
    )
    (workshop / "slow.py").write_text(text)
    done = launch(workshop, "--nproc=1", "-t", "3", "slow.py")
    shown = done.stdout.encode() if isinstance(done.stdout, str) else done.stdout
    assert shown.replace(b"\r", b"\n") == (
        b"[default0]:ab\n[default0]:c\n[default0]:d\n[default0]:e"
    )


def test_ranks_that_are_shown(workshop: Path) -> None:
    """--local-ranks-filter, also by variable; the other ranks' logs exist."""
    done = launch(workshop, "--nproc=2", "--local-ranks-filter=1", SHOWS)
    assert (done.stdout, "err 0" in done.stderr) == ("out 1\n", False)
    assert (logs(workshop) / "rank-0.log").read_text()
    done = launch(workshop, "--nproc=2", SHOWS, PET_LOCAL_RANKS_FILTER="0")
    assert done.stdout == "out 0\n"


def test_lines_of_a_kind(workshop: Path) -> None:
    """Matching lines of all ranks are also in one file; the last needs no newline."""
    (workshop / "talk.py").write_text(
        "import os, sys\n"
        "print('apple'); print('pear'); print('a,b')\n"
        "sys.stderr.write(f'plum {os.environ[\"RANK\"]}')\n"
    )
    options = ("--duplicate-stdout-filters=apple,a,,b", "--duplicate_stderr_filters=plum")
    done = launch(workshop, "--nproc=2", *options, "talk.py")
    assert done.stdout.count("pear") == 2
    folder = logs(workshop)
    lines = sorted((folder / "filtered_stdout.log").read_text().splitlines())
    assert lines == [f"[default{rank}]:{word}" for rank in range(2) for word in ("a,b", "apple")]
    lines = sorted((folder / "filtered_stderr.log").read_text().splitlines())
    assert lines == ["[default0]:plum 0", "[default1]:plum 1"]


def test_a_folder_for_each_ranks_log(workshop: Path) -> None:
    """--enable_each_rank_log: deepspeed's names, both streams, an empty console."""
    done = launch(workshop, "--nproc=2", "--enable_each_rank_log=deep/logs", SHOWS)
    assert done.returncode == 0, done.stderr
    assert "out" not in done.stdout
    assert "err 0" not in done.stderr
    files = sorted((workshop / "deep" / "logs").iterdir(), key=lambda path: path.name[-5:])
    assert [path.name[14:] for path in files] == ["_rank0.log", "_rank1.log"]
    assert all(path.name[:14].isdigit() for path in files)
    assert sorted(files[1].read_text().split()) == ["1", "1", "err", "out"]


@pytest.mark.parametrize(
    ("options", "variables"),
    [(("-q",), {}), (("--log_level=warning",), {}), ((), {"LOGLEVEL": "ERROR"})],
)
def test_quiet(workshop: Path, options: tuple[str, ...], variables: dict[str, str]) -> None:
    """No output on success; diagnoses and errors are still printed."""
    # Another test may be building an extension, which gets a message.
    variables = {**variables, "TORCH_EXTENSIONS_DIR": str(workshop / "extensions")}
    done = launch(workshop, *options, "--nproc=2", SHOWS, **variables)
    assert done.returncode == 0
    assert "[safe-launch]" not in done.stderr
    done = launch(workshop, *options, "--nproc=1", PROGRAMS / "fails.py", "0:raise", **variables)
    assert "rank 0 raised ValueError" in said(done)
    assert "logs and records" in said(done)
    assert " on 1 x" not in said(done)
    assert "there is no script" in said(launch(workshop, *options, "absent.py", **variables))


FLAKY = """
import os
from pathlib import Path
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
assert os.environ["TORCHELASTIC_MAX_RESTARTS"] == "3"
Path(f"attempt-{count}-{os.environ['RANK']}").touch()
if count < int(os.environ["FAILURES"]) and os.environ["RANK"] == "0":
    raise ConnectionError(os.environ["TEXT"].replace("N", str(count)))
"""


@pytest.mark.parametrize(
    ("fix", "failures", "text", "code", "attempts", "words"),
    [
        ("auto", 2, "try N", 0, 3, "--max-restarts 3: restarting with the same plan, 2 of 3"),
        ("suggest", 1, "try N", 0, 2, "--max-restarts 3: restarting with the same plan, 1 of 3"),
        ("once", 9, "try N", 1, 4, "not restarted (--max-restarts 3): no restart is left"),
        ("auto", 9, "the same", 1, 2, "not restarted (--max-restarts 3): it has ended in"),
    ],
)
def test_restarts(
    workshop: Path, fix: str, failures: int, text: str, code: int, attempts: int, words: str
) -> None:
    """Up to the limit, unless the same end repeats; with any correction setting."""
    (workshop / "flaky.py").write_text(FLAKY)
    variables = {"FAILURES": failures, "TEXT": text, "PET_MAX_RESTARTS": 3}
    done = launch(workshop, "--nproc=2", f"--fix={fix}", "flaky.py", **variables)
    assert done.returncode == code, done.stderr
    assert words in said(done)
    found = {int(path.name.split("-")[1]) for path in workshop.glob("attempt-*")}
    assert found == set(range(attempts))


@needs_hosts
def test_restarts_on_all_nodes(tmp_path: Path) -> None:
    """Node 0 decides: a failure on node 1 restarts both with the same plan."""
    command = (PROGRAMS / "stays.py", tmp_path, 1)
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, *command, own=("--max-restarts=2",)) as (head, other),
    ):
        wait_for(lambda: all((tmp_path / f"ready-1-{rank}").exists() for rank in range(2)))
        (tmp_path / "finish").touch()
        ended([head, other], 0)
        assert head.says("--max-restarts 2: restarting with the same plan, 1 of 2")
        assert other.says("attempt 2: node 0 relaunches with the same plan")


def test_no_restart_of_what_the_user_must_mend(workshop: Path) -> None:
    """A known error of the script isn't retried, with a message."""
    script = ROOT / "tests" / "reproductions" / "batch-lengths-differ.py"
    done = launch(workshop, "--nproc=1", "--max-restarts=3", script)
    assert done.returncode == 1
    assert "(--max-restarts 3): the same input fails with batch-lengths-differ" in said(done)
    assert "attempt 2" not in said(done)


CATCHES = """
import os, signal, time
from pathlib import Path
rank = os.environ["RANK"]
assert signal.getsignal(signal.SIGCONT) is signal.SIG_DFL
signal.signal(signal.SIGCONT, lambda *_: Path(f"caught-{rank}").touch())
Path(f"ready-{rank}").touch()
while not Path("finish").exists():
    time.sleep(0.02)
"""


def test_signals_that_are_passed_on(workshop: Path) -> None:
    """Signals in --signals-to-handle reach the workers, and the training finishes."""
    (workshop / "catches.py").write_text(CATCHES)
    launcher = begin(workshop, "--nproc=2", "--signals-to-handle=SIGTERM,SIGCONT", "catches.py")
    wait_for(lambda: all((workshop / f"ready-{rank}").exists() for rank in range(2)))
    launcher.send_signal(signal.SIGCONT)
    wait_for(lambda: all((workshop / f"caught-{rank}").exists() for rank in range(2)))
    (workshop / "finish").touch()
    _, stderr = launcher.communicate()
    assert launcher.returncode == 0, stderr


def test_a_program_gets_the_signal_that_stops_it(workshop: Path) -> None:
    """It inherits no mask, so its SIGTERM handler, for example to save, runs."""
    words = "trap 'touch caught; exit 0' TERM; touch ready; while true; do sleep 0.1; done"
    launcher = begin(workshop, "--no-python", "--nproc=1", "sh", "-c", words)
    wait_for((workshop / "ready").exists)
    launcher.terminate()
    _, stderr = launcher.communicate()
    assert launcher.returncode == 128 + signal.SIGTERM, stderr
    assert (workshop / "caught").exists()


def test_a_file_with_the_launchers_process_id(workshop: Path) -> None:
    """--save_pid: at deepspeed's path, during the run."""
    (workshop / "catches.py").write_text(CATCHES)
    launcher = begin(workshop, "--nproc=1", "--save_pid", "catches.py")
    wait_for((workshop / "ready-0").exists)
    file = Path("/tmp") / f"{launcher.pid}.deepspeed"
    assert file.read_text() == str(launcher.pid)
    (workshop / "finish").touch()
    launcher.communicate()
    assert not file.exists()


def test_the_time_of_a_shutdown(workshop: Path) -> None:
    """Torch elastic's variable applies to the launch."""
    own = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}
    assert launch(workshop, "--nproc=1", SHOWS, **own).returncode == 0
    request = json.loads((logs(workshop).parent / "request.json").read_text())
    assert request["stop_times"]["terminate"] == 5.0


def test_a_shutdown_time_that_is_none(workshop: Path) -> None:
    """The variable is named."""
    done = launch(workshop, SHOWS, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="soon")
    assert done.returncode == 64
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon: a number of seconds is needed" in said(done)


def test_a_port_that_is_in_use(workshop: Path) -> None:
    """On a single node another port is used, with a message."""
    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = busy.getsockname()[1]
        done = launch(workshop, "--master-port", str(port), SHOWS)
    assert done.returncode == 0
    other = seen(workshop, 0)["environment"]["MASTER_PORT"]
    assert other != str(port)
    assert f"port {port} is in use: the workers meet at port {other}" in said(done)


def test_each_host_by_itself(workshop: Path) -> None:
    """--no_ssh: the command runs on every host; two launchers here act as two hosts."""
    (workshop / "hosts").write_text("one slots=1\ntwo slots=2\n")
    own = (LAUNCHER, "--log-dir=runs", "--no_ssh", "--no_ssh_check", "--hostfile=hosts")
    where = ("--master_addr=127.0.0.1", f"--master_port={free_port()}")
    nodes = [
        subprocess.Popen(
            [*own, *where, f"--node_rank={rank}", str(SHOWS)],
            cwd=workshop,
            env=environment(workshop),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ends = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], ends
    for rank, (node, local, size) in enumerate([("0", "0", "1"), ("1", "0", "2"), ("1", "1", "2")]):
        found = seen(workshop, rank)["environment"]
        names = ("CROSS_RANK", "LOCAL_RANK", "LOCAL_SIZE", "WORLD_SIZE")
        assert [found[name] for name in names] == [node, local, size, "3"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "--no_ssh: this host isn't in hosts by its name"),
        (("--node_rank=2",), "--node_rank 2: there are 2 hosts (hosts)"),
        (("--node_rank=-1",), "--node_rank -1: there are 2 hosts (hosts)"),
    ],
)
def test_which_of_the_hosts_this_is(workshop: Path, options: tuple[str, ...], problem: str) -> None:
    """By rank, or by one of this host's names."""
    (workshop / "hosts").write_text("one.invalid slots=1\ntwo.invalid slots=1\n")
    done = launch(workshop, "--hostfile=hosts", "--no_ssh", *options, SHOWS)
    assert done.returncode == 64
    assert problem in said(done)


def test_a_plan_is_printed_where_it_was_asked_for(workshop: Path) -> None:
    """On stdout without a prefix; a program can't be analysed, which is reported."""
    plan = subprocess.run(
        [LAUNCHER, "plan", "--verbose", "--no-python", "bash", "run.sh"],
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (plan.returncode, plan.stderr) == (0, "")
    assert "[safe-launch]" not in plan.stdout
    assert "bash run.sh" in plan.stdout
    assert "can't be seen or corrected" in " ".join(plan.stdout.split())


@pytest.mark.parametrize("endpoint", [(), ("--rdzv-endpoint=localhost:{port}",)])
def test_two_launchers_on_one_host(workshop: Path, endpoint: tuple[str, ...]) -> None:
    """c10d without ranks: the first is node 0, the other joins it, as under torchrun."""
    port = free_port()
    own = [text.format(port=port) for text in endpoint] or [f"--master-port={port}"]
    line = ("--nnodes=2", "--nproc=1", "--rdzv-backend=c10d", *own, SHOWS)
    launchers = [begin(workshop, *line) for _ in range(2)]
    said = [launcher.communicate()[1] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], said
    assert {seen(workshop, rank)["environment"]["GROUP_RANK"] for rank in (0, 1)} == {"0", "1"}
    assert all(seen(workshop, rank)["environment"]["WORLD_SIZE"] == "2" for rank in (0, 1))


def test_a_port_that_isnt_node_0s(workshop: Path) -> None:
    """Another program on the port is waited for no longer than a silent node."""
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        own = ("--nnodes=2", f"--rdzv-endpoint=localhost:{port}", "--node-timeout=1")
        done = launch(workshop, *own, "--nproc=1", SHOWS)
    assert done.returncode == 75
    assert "hasn't answered within 1 s" in said(done)
    assert "another --master-port" in said(done)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--include=localhost:2,3",), "2 x a100-80gb"),
        (("--exclude=localhost:0",), "7 x a100-80gb"),
        (("--num_gpus=3",), "3 x a100-80gb"),
        (("--nproc=64", "--bind_cores_to_rank"), "64 x a100-80gb"),
        (("--bind_cores_to_rank", "--bind_core_list=40-63"), "8 x a100-80gb"),
        (("--virtual-local-rank",), "8 x a100-80gb"),
    ],
)
def test_a_plan_for_other_hardware(workshop: Path, options: tuple[str, ...], words: str) -> None:
    """Devices and cores come from --hardware, whatever this host has."""
    (workshop / "train.py").touch()
    line = ("plan", "--hardware=a100-80gb", *options, "train.py")
    done = launch(workshop, *line, ours=False, CUDA_VISIBLE_DEVICES="0,1")
    assert done.returncode == 0, done.stderr
    assert words in " ".join(done.stdout.split())


def test_a_launch_keeps_this_hosts_devices_and_cores(workshop: Path) -> None:
    """--hardware names this host's profile; devices are chosen among its own."""
    (workshop / "train.py").touch()
    cores = f"--bind_core_list={max(os.sched_getaffinity(0)) + 1}"
    for option in ("--include=localhost:2", "--bind_cores_to_rank"):
        own = (cores,) if option == "--bind_cores_to_rank" else ()
        done = launch(workshop, "--hardware=cpu", option, *own, "train.py")
        assert done.returncode == 64, done.stderr


def test_an_accelerate_configuration_of_another_kind(workshop: Path) -> None:
    """FSDP 1 launches as by `accelerate launch` on as many workers, with a line."""
    text = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 1}\n"
    (workshop / "fsdp.yaml").write_text(text)
    done = launch(workshop, "--accelerate-config=fsdp.yaml", SHOWS)
    assert done.returncode == 0, done.stderr
    found = seen(workshop, 1)["environment"]
    assert (found["WORLD_SIZE"], found["ACCELERATE_USE_FSDP"]) == ("2", "true")
    assert (found["FSDP_VERSION"], found["FSDP_USE_ORIG_PARAMS"]) == ("1", "true")
    assert "fsdp.yaml: FSDP isn't modelled: it is launched as asked" in said(done)
