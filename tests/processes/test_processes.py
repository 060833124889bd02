"""The launcher and workers as processes: exit codes, signals, orphans, output; for real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.processes import (
    FAST,
    LAUNCHER,
    PROGRAMS,
    TORCHRUN,
    begin,
    belongs,
    environment,
    gone,
    launch,
    ready,
)
from support.waiting import wait_for


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("1:exit42", 42, "rank 1 left with exit code 42"),
        ("1:leave42", 42, "rank 1 left with exit code 42"),
        ("1:raise", 1, "rank 1 raised ValueError"),
        ("1:killSIGKILL", 137, "rank 1 was ended by SIGKILL (from outside: the kernel's"),
        ("1:killSIGSEGV", 139, "rank 1 was ended by SIGSEGV (invalid memory access"),
    ],
)
def test_the_workers_own_exit_code(workshop: Path, how: str, code: int, words: str) -> None:
    """The launcher ends with the worker's code and its meaning."""
    done = launch(workshop, "--nproc=2", PROGRAMS / "fails.py", how)
    assert done.returncode == code
    assert words in " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert "relaunching" not in done.stderr
    assert os.listdir(workshop / "tmp") == []
    assert gone(workshop)


def test_torchrun_hides_the_exit_code(workshop: Path) -> None:
    """For comparison: torchrun turns every code into 1."""
    done = launch(
        workshop, "--nproc-per-node=2", PROGRAMS / "fails.py", "1:exit42", command=TORCHRUN
    )
    assert done.returncode == 1


@pytest.mark.parametrize("how", ["raise", "exit42", "leave42"])
def test_names_the_rank_that_failed_first(workshop: Path, how: str) -> None:
    """Rank 2 fails and the others 20 ms later: rank 2 is named."""
    late = [f"{rank}:0.02@raise" for rank in (0, 1, 3)]
    mark = workshop / "all"
    done = launch(workshop, "--nproc=4", PROGRAMS / "fails.py", f"2:{how}", *late, READY=mark)
    assert "attempt 1: failed: rank 2 " in done.stderr
    assert done.returncode == (1 if how == "raise" else 42)
    assert done.stderr.count("attempt 1") == 1
    if how == "raise":
        own = [line for line in done.stderr.splitlines() if "[safe-launch]" not in line]
        assert sum("ValueError: the bug of rank 2" in line for line in own) == 1
        assert not any("safe_launch" in line or "launcher/" in line for line in own)
        assert "what     ValueError: the bug of rank 2\n" in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_stop_reaches_the_workers_and_gives_them_time(
    workshop: Path, number: signal.Signals, code: int
) -> None:
    """Workers' handlers clean up; grandchildren end, too; the code is 128 + N."""
    heeded = "SIGTERM" if number == signal.SIGHUP else number.name
    launcher = begin(workshop, "--nproc=2", PROGRAMS / "stubborn.py", workshop, heeded)
    ready(workshop, 2)
    launcher.send_signal(number)
    _, told = launcher.communicate()
    assert launcher.returncode == code
    if number != signal.SIGHUP:
        for rank in range(2):
            assert (workshop / f"goodbye-{rank}").read_text() == "had time to clean up"
    assert f"attempt 1: stopped by {number.name}" in told
    assert gone(workshop)


@pytest.mark.parametrize("options", [(), ("--start-method=spawn",), ("--no-python",)])
def test_what_nohup_ignores_stays_ignored(workshop: Path, options: tuple[str, ...]) -> None:
    """A terminal's SIGHUP ends neither launcher nor workers; SIGTERM still does."""
    (workshop / "train.py").write_text(
        "#!/usr/bin/env python\n"
        "import os, signal, sys, time\n"
        "assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN\n"
        "open(f'ready-{os.environ[\"RANK\"]}', 'w').close()\n"
        "while not os.path.exists('go'):\n"
        "    time.sleep(0.05)\n"
    )
    (workshop / "train.py").chmod(0o700)
    nohup = subprocess.Popen(
        ["nohup", LAUNCHER, "--log-dir=runs", "--nproc=2", *options, "./train.py"],
        cwd=workshop,
        env=environment(workshop),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ready(workshop, 2)
    for process in psutil.process_iter():
        if belongs(process, workshop):
            process.send_signal(signal.SIGHUP)
    (workshop / "go").touch()
    told, _ = nohup.communicate()
    assert nohup.returncode == 0, told
    assert gone(workshop)


def test_workers_that_ignore_signals(workshop: Path) -> None:
    """Ctrl-C escalates from INT over TERM to KILL, each step is reported, and none survive."""
    times = ("--interrupt-timeout=2", "--shutdown-timeout=2")
    launcher = begin(workshop, "--nproc=2", *times, PROGRAMS / "stubborn.py", workshop)
    ready(workshop, 2)
    launcher.send_signal(signal.SIGINT)
    _, told = launcher.communicate()
    assert launcher.returncode == 130
    for rank in range(2):
        assert (workshop / f"signals-{rank}").read_text().split() == ["SIGINT", "SIGTERM"]
        assert f"rank {rank} is still running after SIGINT: sending SIGTERM" in told
        assert f"rank {rank} is still running after SIGINT, SIGTERM: sending SIGKILL" in told
    assert gone(workshop)


def test_a_second_ctrl_c_doesnt_wait(workshop: Path) -> None:
    """Repeated signals skip the delays to the next step."""
    times = ("--interrupt-timeout=300", "--shutdown-timeout=300")
    launcher = begin(workshop, "--nproc=1", *times, PROGRAMS / "stubborn.py", workshop)
    ready(workshop, 1)
    noted = workshop / "signals-0"
    launcher.send_signal(signal.SIGINT)
    wait_for(lambda: noted.exists() and "SIGINT" in noted.read_text())
    launcher.send_signal(signal.SIGINT)
    wait_for(lambda: "SIGTERM" in noted.read_text())
    launcher.send_signal(signal.SIGINT)
    launcher.communicate()
    assert launcher.returncode == 130
    assert gone(workshop)


def test_the_launcher_killed_leaves_no_orphan(workshop: Path) -> None:
    """SIGKILL of the launcher: workers and grandchildren in other sessions end, too."""
    launcher = begin(workshop, "--nproc=2", PROGRAMS / "stubborn.py", workshop)
    ready(workshop, 2)
    launcher.kill()
    launcher.communicate()
    wait_for(lambda: gone(workshop))


def test_sigusr1_is_for_those_who_handle_it(workshop: Path) -> None:
    """Rank 0 handles it, rank 1 gets none and continues; the training finishes."""
    launcher = begin(workshop, "--nproc=2", PROGRAMS / "stubborn.py", workshop)
    ready(workshop, 2)
    launcher.send_signal(signal.SIGUSR1)
    noted = workshop / "signals-0"
    wait_for(lambda: noted.exists() and noted.read_text() == "SIGUSR1\n")
    (workshop / "finish").touch()
    _, told = launcher.communicate()
    assert launcher.returncode == 0
    assert "SIGUSR1 isn't passed on: rank 1 has no handler for it" in told
    assert not (workshop / "signals-1").exists()
    for rank in range(2):  # a success leaves the script's own processes running
        os.kill(int((workshop / f"grandchild-{rank}").read_text()), signal.SIGKILL)
    wait_for(lambda: gone(workshop))


def test_output_arrives_whole(workshop: Path) -> None:
    """Separate streams, whole lines in order, progress bars and 20 MB; logs are complete."""
    done = launch(workshop, "--nproc=2", PROGRAMS / "prints.py")
    assert done.returncode == 0
    for rank in "01":
        # The other rank's last line has no newline, so the first of these may follow it directly.
        ours = re.findall(rf"rank {rank} line \d+$", done.stdout, re.MULTILINE)
        assert ours == [f"rank {rank} line {number}" for number in range(200)]
        assert f"error of {rank}\n" in done.stderr
        (log,) = (workshop / "runs").glob(f"*/attempt-1/rank-{rank}.log")
        assert log.stat().st_size > 100 * 100_000
    assert done.stdout.count("x" * 99_999 + "\n") == 200
    assert done.stdout.count("no newline at the end") == 2
    assert done.stdout.count("z") == 2 * 40 * 100_000
    assert "progress 2\n" in done.stderr
    assert os.listdir(workshop / "tmp") == []


def test_the_run_directory(workshop: Path) -> None:
    """Plan, records, logs and outcome are kept."""
    launch(workshop, "--nproc=2", PROGRAMS / "fails.py", "1:raise")
    (run,) = (workshop / "runs").iterdir()
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    folder = "attempt-1"
    told = ["failures.json", "observed.json", "plan.json", "progress-0.json"]
    expected = [*told, "rank-0.log", "rank-1.log"]
    own = ["launcher-0.json", "outcome.json", "request.json"]
    assert names == [*(f"{folder}/{name}" for name in expected), *own]
    assert json.loads((run / "outcome.json").read_text()) == {"exit_code": 1, "attempts": 1}
    finding = json.loads((run / folder / "failures.json").read_text())["findings"][0]
    assert finding["role"] == "initiating"
    assert finding["record"]["rank"] == 1
    assert finding["record"]["message"] == "the bug of rank 1"
    assert "ValueError: the bug of rank 1" in (run / folder / "rank-1.log").read_text()


def test_a_closed_console_ends_nothing(workshop: Path) -> None:
    """`| head -1`: workers and launcher run to their end."""
    command = f"{LAUNCHER} --log-dir=runs --nproc=2 {PROGRAMS / 'prints.py'} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("abort-at-exit", 0, "was ended by SIGABRT after its script had finished"),
        ("hanging-thread", 1, "raised ValueError"),
        ("excepthook", 1, "the script's own excepthook"),
        ("broken-str", 1, "BrokenError without a readable message"),
        ("recursion", 1, "raised RecursionError"),
        ("group", 1, "raised ValueError"),
        ("caught", 3, "raised KeyError"),
        ("text", 1, "a farewell as text"),
    ],
)
def test_odd_ends(workshop: Path, how: str, code: int, words: str) -> None:
    """Ends that would mislead a launcher that reads exit codes only."""
    done = launch(workshop, "--nproc=1", *FAST, PROGRAMS / "ends.py", how)
    assert done.returncode == code
    (run,) = (workshop / "runs").iterdir()
    evidence = "".join(path.read_text() for path in run.rglob("failures.json"))
    assert words in done.stderr + evidence
    assert gone(workshop)


def test_a_script_sees_what_python_shows_it(workshop: Path) -> None:
    """argv, __main__, paths, pickling, multiprocessing, atexit, stdin: as `python script.py`."""
    (workshop / "elsewhere").mkdir()
    link = workshop / "link.py"
    link.symlink_to(PROGRAMS / "sees.py")
    for name in ("wrapt", "launcher", "presets", "psutil"):
        (workshop / f"{name}.py").write_text("raise ImportError('the wrong module')\n")
    arguments = ("link.py", "--flag", "a b", "--nproc=9")
    done = launch(workshop, "--nproc=1", *arguments, SEEN=workshop / "ours-")
    assert done.returncode == 0, done.stderr
    launch(workshop, *arguments, command=sys.executable, SEEN=workshop / "plain-", RANK=0)
    # torchrun parses its options even after the script; omit that one.
    theirs_too = ("--nproc-per-node=1", *arguments[:-1])
    launch(workshop, *theirs_too, command=TORCHRUN, SEEN=workshop / "torch-")
    ours, plain, theirs = (
        json.loads((workshop / f"{name}-0").read_text()) for name in ("ours", "plain", "torch")
    )
    environments = [set(one.pop("environment")) for one in (ours, plain, theirs)]
    assert ours == plain
    assert ours == {**theirs, "argv": list(arguments)}
    for_torchrun_itself = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
    missing = environments[2] - environments[0] - for_torchrun_itself
    assert missing == set()
    assert (workshop / "ours-0.atexit").read_text() == "Thing"


def test_a_module_runs_as_python_m_runs_it(workshop: Path) -> None:
    """`-m package` and `-m package.module` behave as in the interpreter."""
    package = workshop / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    text = (
        "import sys; from . import __name__ as n; print(__name__, n, sys.argv[1:], __spec__.name)"
    )
    (package / "__main__.py").write_text(text)
    (package / "tune.py").write_text(text)
    for name in ("trainer", "trainer.tune"):
        ours = launch(workshop, "--nproc=1", "-m", name, "x")
        plain = launch(workshop, "-m", name, "x", command=sys.executable)
        assert ours.stdout == plain.stdout != ""
    missing = launch(workshop, "--nproc=1", "-m", "no_such_module")
    assert missing.returncode == 1
    assert "No module named no_such_module" in missing.stderr


def test_the_hidden_traceback_is_the_users_own(workshop: Path) -> None:
    """An error in an imported module has the user's frames and none of ours."""
    (workshop / "broken.py").write_text("def f(:\n")
    (workshop / "script.py").write_text("import broken\n")
    done = launch(workshop, "--nproc=1", "script.py")
    assert done.returncode == 1
    assert re.search(r'File ".*script\.py", line 1, in <module>\n\s+import broken', done.stderr)
    assert "worker.py" not in done.stderr


def test_as_a_containers_first_process(workshop: Path) -> None:
    """As PID 1 it handles SIGTERM at any moment, reaps orphans, and leaves no process."""
    inside = (
        f"exec {LAUNCHER} --log-dir=runs --nproc=1 {PROGRAMS / 'stubborn.py'} {workshop} SIGTERM"
    )
    container = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", inside]
    if os.geteuid():
        pytest.skip("a pid namespace needs root")
    with subprocess.Popen(
        container, cwd=workshop, env=environment(workshop), stderr=subprocess.PIPE, text=True
    ) as outside:
        ready(workshop, 1)
        (init,) = psutil.Process(outside.pid).children()
        assert init.children() != []
        init.send_signal(signal.SIGTERM)
        _, told = outside.communicate()
    assert outside.returncode == 143
    assert "attempt 1: stopped by SIGTERM" in told
    assert (workshop / "goodbye-0").exists()
    wait_for(lambda: gone(workshop))


def test_sigterm_before_the_workers_run(workshop: Path) -> None:
    """A signal during torch's import ends the launcher with its code."""
    launcher = begin(workshop, "--nproc=1", PROGRAMS / "stubborn.py", workshop)
    wait_for(lambda: (workshop / "runs").exists())
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate()
    assert launcher.returncode == 143
    wait_for(lambda: gone(workshop))


def test_the_out_of_memory_killer_is_named(workshop: Path) -> None:
    """A worker killed by its cgroup's memory limit is reported as such."""
    group = Path("/sys/fs/cgroup/memory") / f"safe-launch-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text("50M")
    except OSError:
        pytest.skip("making a memory cgroup (version 1) isn't permitted here")
    try:
        (workshop / "eats.py").write_text(
            f"import os\nopen('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
            "hoard = [bytearray(b'x' * 1_000_000) for _ in range(1000)]\n"
        )
        done = launch(workshop, "--nproc=1", "eats.py")
    finally:
        group.rmdir()
    assert done.returncode == 137
    told = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert "SIGKILL (the kernel's out-of-memory killer struck on this host meanwhile)" in told


def test_shared_memory_of_deepspeed_goes_with_the_attempt(workshop: Path) -> None:
    """On CPUs DeepSpeed never unlinks its buffers, so every attempt would leak memory."""
    done = launch(workshop, "--nproc", 2, PROGRAMS / "buffers.py")
    made = re.findall(r"made (\S+)", done.stdout)
    assert len(made) == 2, done.stderr
    assert not any((Path("/dev/shm") / name).exists() for name in made)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    ("how", "ranks", "code"),
    [
        ("signalled", 2, 1),
        ("interrupted", 2, 1),
        ("signalled handler", 2, 1),
        ("overtaken", 3, 1),
        ("overtaken thread", 3, 1),
        ("killed", 2, 137),
        ("hanging", 2, 1),
    ],
)
def test_the_cause_is_named_however_long_telling_it_takes(
    workshop: Path, how: str, ranks: int, code: int, method: str
) -> None:
    """Consequences come first, a thread takes the stop, or the rank is killed."""
    program = (PROGRAMS / "fails_slowly.py", *how.split())
    times = FAST if how == "hanging" else FAST[:1]
    done = launch(workshop, f"--nproc={ranks}", f"--start-method={method}", *times, *program)
    assert "attempt 1: failed: rank 0 raised CauseError" in done.stderr
    assert done.returncode == code
    if how not in ("killed", "hanging"):
        assert done.stderr.count("\nCauseError: the cause\n") == 1
    assert (workshop / "heeded").exists() == ("handler" in how)
    assert gone(workshop)


def test_an_excepthook_that_ends_the_process(workshop: Path) -> None:
    """The exit code is the one that its hook chose after the record."""
    (workshop / "hooked.py").write_text(
        "import os, sys\nsys.excepthook = lambda *_: os._exit(9)\nraise RuntimeError('boom')\n"
    )
    done = launch(workshop, "--nproc=1", *FAST, "hooked.py")
    assert done.returncode == 9
    assert "RuntimeError: boom" in done.stderr
