"""`safe-launch wrap` with real tools that call torchrun, deepspeed or accelerate."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from safe_launch import inner_launch
from safe_launch.commands import wrap_protocol
from safe_launch.evidence.failed_workers import FailedWorker
from safe_launch.system.unix_sockets import at_folder
from support.processes import FAST, PROGRAMS, environment, gone, ready
from support.stacks import CURRENT, SCENARIOS
from support.waiting import wait_for

SAFE_LAUNCH = str(CURRENT.bin / "safe-launch")
TOOL = PROGRAMS / "tool.py"
HOWS = (
    "torchrun",
    "module",
    "module-unbuffered",
    "launch",
    "deepspeed",
    "accelerate",
    "accelerate-deepspeed",
    "safe-launch",
    "call",
)
UNSEEN = "no launch was seen"


def wrap(
    folder: Path, *command: object, own: tuple[str, ...] = ("--log-dir=runs",), **variables: object
) -> subprocess.CompletedProcess[str]:
    """Wraps a command and waits for its end."""
    return subprocess.run(
        [SAFE_LAUNCH, "wrap", *own, "--", *map(str, command)],
        cwd=folder,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def begin(folder: Path, *command: object, own: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Wraps a command as a process group leader, like a shell, and lets it run."""
    return subprocess.Popen(
        [SAFE_LAUNCH, "wrap", "--log-dir=runs", *own, "--", *map(str, command)],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def said(folder: Path, rank: int) -> dict[str, object]:
    """The input of `says.py`."""
    told: dict[str, object] = json.loads((folder / f"said-{rank}").read_text())
    return told


@pytest.mark.parametrize("how", HOWS)
def test_a_tools_own_launch_is_ours(workshop: Path, how: str) -> None:
    """Every way to launch: two of our workers, whole arguments, no trace of the wrap."""
    script = workshop / "a folder" / "my script.py"
    script.parent.mkdir()
    script.write_text((PROGRAMS / "says.py").read_text())
    done = wrap(workshop, sys.executable, TOOL, how, 2, script, "--text", "two words", "-m")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        told = said(workshop, rank)
        first = [f"--local-rank={rank}"] if how == "launch" else []
        assert told["argv"] == [str(script), *first, "--text", "two words", "-m"]
        assert told["world"] == "2"
        assert told["SAFE_LAUNCH_PRESET"] is not None
        assert told["SAFE_LAUNCH_WRAP_OPTIONS"] is None
        # accelerate itself adds the working directory, for deepspeed
        assert told["PYTHONPATH"] == (str(workshop) if how == "accelerate-deepspeed" else None)
        assert not any("hook" in one for one in told["path"])  # type: ignore[attr-defined]
    assert (workshop / "tool-went-on").exists()
    assert len(list((workshop / "runs").iterdir())) == 1
    assert UNSEEN not in done.stderr
    assert os.listdir(workshop / "tmp") == []


def test_a_shell_script(workshop: Path) -> None:
    """Each launch of a shell script is ours; the rest is unchanged."""
    script = workshop / "run all.sh"
    launch = f"torchrun --nproc_per_node 2 '{PROGRAMS / 'says.py'}'"
    script.write_text(f"#!/bin/sh\nset -e\n{launch} one\nmv said-0 first\n{launch} two\n")
    script.chmod(0o755)
    done = wrap(workshop, "./run all.sh")
    assert done.returncode == 0, done.stderr
    assert json.loads((workshop / "first").read_text())["argv"][1:] == ["one"]
    assert said(workshop, 0)["argv"][1:] == ["two"]  # type: ignore[index]
    assert len(list((workshop / "runs").iterdir())) == 2


def test_the_users_own_path_and_sitecustomize(workshop: Path) -> None:
    """PYTHONPATH reaches the workers unchanged, and the user's sitecustomize still runs."""
    own = workshop / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nos.environ['USERS_OWN'] = 'here'\n")
    path = f"{own}:/nowhere"
    done = wrap(workshop, "torchrun", PROGRAMS / "says.py", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    told = said(workshop, 0)
    assert told["PYTHONPATH"] == path
    assert told["USERS_OWN"] == "here"
    assert str(own) in told["path"]  # type: ignore[operator]
    shown = (
        "import os, sys; print(os.environ['USERS_OWN'], [one for one in sys.path if 'ow' in one])"
    )
    done = wrap(workshop, sys.executable, "-c", shown, PYTHONPATH=path)
    assert done.stdout == f"here {[str(own), '/nowhere']}\n"


def test_a_failure_is_corrected_below_a_tool(workshop: Path) -> None:
    """A failure below the tool is corrected without the tool's notice."""
    loss = workshop / "loss"
    run = (sys.executable, TOOL, "module", 2, SCENARIOS / "ddp_lora.py", "--loss_file", loss)
    done = wrap(workshop, *run)
    assert done.returncode == 0, done.stderr
    assert "gradient_checkpointing: reentrant -> non_reentrant" in done.stderr
    assert loss.exists()
    assert (workshop / "tool-went-on").exists()


def test_the_options_are_the_inner_launchs(workshop: Path) -> None:
    """`--strict` for wrap refuses the inner launch; the tool fails, and wrap gives the reason."""
    run = ("torchrun", "--nproc_per_node=2", SCENARIOS / "ddp_lora.py")
    done = wrap(workshop, *run, own=("--strict", "--log-dir=runs", "--set", "zero_stage=2"))
    assert done.returncode == 78, done.stderr


@pytest.mark.parametrize("how", ["torchrun", "module", "accelerate", "call"])
def test_the_launchs_own_exit_code(workshop: Path, how: str) -> None:
    """The tool turns every code into 1; wrap ends with the launch's and reports that."""
    done = wrap(workshop, sys.executable, TOOL, how, 2, PROGRAMS / "says.py", "exit", 42)
    assert done.returncode == 42, done.stderr
    assert not (workshop / "tool-went-on").exists()


RECORDED = """
import os, time
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    open(f"pid-{os.environ['RANK']}", "w").write(str(os.getpid()))
    while not all(os.path.exists(f"pid-{rank}") for rank in "01"):
        time.sleep(0.01)
    if os.environ["RANK"] == "1":
        END
    time.sleep(600)

main()
"""
"""Its rank 1 ends first, in one of several ways."""


@pytest.mark.parametrize(
    ("end", "exit_code", "message"),
    [
        ("raise ValueError('no such data')", 1, "ValueError: no such data"),
        ("os.kill(os.getpid(), 9)", -9, "Signal 9 (SIGKILL)"),
    ],
)
def test_a_tool_catches_torchs_error(
    workshop: Path, end: str, exit_code: int, message: str
) -> None:
    """The error has the failed rank and cause; the tool continues with its own exit code."""
    (workshop / "train.py").write_text(RECORDED.replace("END", end))
    done = wrap(workshop, sys.executable, TOOL, "call-and-catch", 2, "train.py")
    assert done.returncode == 0, done.stderr
    caught = json.loads((workshop / "caught").read_text())
    assert caught["first"] == 1
    local_rank, pid, code, error_file, told = caught["failures"]["1"]
    assert (local_rank, code) == (1, exit_code)
    assert pid == int((workshop / "pid-1").read_text())
    assert message in str(told)
    assert error_file.endswith("rank-1.error.json") == (exit_code == 1)
    assert (workshop / "tool-went-on").exists()


def test_a_tool_that_doesnt_catch_it(workshop: Path) -> None:
    """It cleans up and ends with the launch's code; torch's table doesn't follow our verdict."""
    done = wrap(workshop, sys.executable, TOOL, "call", 2, PROGRAMS / "says.py", "exit", 42)
    assert done.returncode == 42, done.stderr
    assert (workshop / "tool-cleaned-up").exists()
    assert "Traceback" not in done.stderr
    assert "ChildFailedError" not in done.stderr
    assert "exit code 42" in done.stderr.splitlines()[-1]


def test_a_refused_launch_is_torchs_error(workshop: Path) -> None:
    """No worker failed, but the launch did, and the tool can clean up."""
    own = ("--log-dir=runs", "--set", "zero_stage=9")
    done = wrap(workshop, sys.executable, TOOL, "call-and-catch", 2, PROGRAMS / "says.py", own=own)
    assert done.returncode == 0, done.stderr
    caught = json.loads((workshop / "caught").read_text())
    local_rank, _, code, _, message = caught["failures"]["-1"]
    assert (local_rank, code, message) == (-1, 64, "safe-launch ended with exit code 64")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_torchs_exception(number: signal.Signals) -> None:
    """The exception is torchrun's agent's; a worker ended by a signal is a failure."""
    stopped = inner_launch.error_of("train.py", 4711, 128 + number, [])
    assert type(stopped).__name__ == "SignalException"
    assert stopped.sigval == number  # type: ignore[attr-defined]
    worker = FailedWorker(3, 1, 4712, -number, "/nowhere", 0.0)
    failed = inner_launch.error_of("train.py", 4711, 128 + number, [worker])
    assert failed.failures[3].exitcode == -number  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("{launch} || true", 0),
        ("{launch} || exit 3", 42),
        ("{launch}", 42),
        ("{launch} || true; exit 3", 42),
        ("exit 3", 3),
        ("kill -KILL $$", 137),
    ],
)
def test_a_commands_own_exit_code(workshop: Path, script: str, code: int) -> None:
    """A command that accepts a failed launch succeeds; its own code counts."""
    launch = f"torchrun {PROGRAMS / 'says.py'} exit 42"
    done = wrap(workshop, "sh", "-c", script.format(launch=launch))
    assert done.returncode == code, done.stderr
    assert (UNSEEN in done.stderr) == ("{launch}" not in script)


@pytest.mark.parametrize("how", ["module", "accelerate"])
@pytest.mark.parametrize(
    ("number", "code", "heard"),
    [
        (signal.SIGTERM, 143, "SIGTERM\n"),
        (signal.SIGINT, 130, "SIGINT\n"),
        (signal.SIGHUP, 129, "SIGHUP\n"),
    ],
)
def test_a_stop_reaches_the_workers(
    workshop: Path, how: str, number: signal.Signals, code: int, heard: str
) -> None:
    """They get the signal and their grace period; then the tool ends, too."""
    heeds = ("SIGTERM", "SIGINT")
    run = (sys.executable, TOOL, how, 2, PROGRAMS / "stubborn.py", workshop, *heeds)
    process = begin(workshop, *run)
    ready(workshop, 2)
    os.kill(process.pid, number)
    output, _ = process.communicate()
    assert process.returncode == code, output
    if number != signal.SIGHUP:  # stubborn.py has no handler for it
        for rank in (0, 1):
            assert (workshop / f"signals-{rank}").read_text() == heard
            assert (workshop / f"goodbye-{rank}").exists()
    assert not (workshop / "tool-went-on").exists()
    wait_for(lambda: gone(workshop))


def test_a_killed_wrap_leaves_nobody(workshop: Path) -> None:
    """SIGKILL: the tool, the inner launch, its workers and their children end."""
    run = (sys.executable, TOOL, "module", 2, PROGRAMS / "stubborn.py", workshop)
    process = begin(workshop, *run)
    ready(workshop, 2)
    process.kill()
    process.communicate()
    wait_for(lambda: gone(workshop))


def test_ctrl_c_at_a_terminal_leaves_the_tool_alone(workshop: Path) -> None:
    """The group gets SIGINT: workers have their grace period before the tool's handler."""
    run = (sys.executable, TOOL, "torchrun", 2, PROGRAMS / "stubborn.py", workshop, "SIGINT")
    process = begin(workshop, *run)
    ready(workshop, 2)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert (workshop / "goodbye-0").exists()
    assert (workshop / "goodbye-1").exists()
    wait_for(lambda: gone(workshop))


def test_a_stop_ends_a_script_of_several_launches(workshop: Path) -> None:
    """The remaining launches don't start."""
    launch = f"torchrun --nproc_per_node=2 '{PROGRAMS / 'stubborn.py'}' '{workshop}' SIGTERM"
    process = begin(workshop, "bash", "-c", f"{launch}\n{launch}\ntouch went-on")
    ready(workshop, 2)
    process.terminate()
    output, _ = process.communicate()
    assert process.returncode == 143, output
    assert not (workshop / "went-on").exists()
    wait_for(lambda: gone(workshop))


def test_a_signal_for_the_workers(workshop: Path) -> None:
    """SIGUSR1 reaches workers with a handler below the tool; the run continues."""
    run = (sys.executable, TOOL, "module", 2, PROGRAMS / "stubborn.py", workshop, "SIGTERM")
    process = begin(workshop, *run)
    ready(workshop, 2)
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: (workshop / "signals-0").exists())
    process.terminate()
    output, _ = process.communicate()
    assert process.returncode == 143, output
    assert (workshop / "signals-0").read_text() == "SIGUSR1\nSIGTERM\n"
    wait_for(lambda: gone(workshop))


CONNECTS = """
import os, pathlib, socket, subprocess, sys, time
from safe_launch.system.unix_sockets import at_folder
launch = subprocess.Popen(["torchrun", "--nproc_per_node=1", *sys.argv[2:]])
while not pathlib.Path("ready-0").exists():
    time.sleep(0.01)
held = []
for _ in range(4):
    connection = socket.socket(socket.AF_UNIX)
    with at_folder(os.environ["SAFE_LAUNCH_WRAP_SOCKET"], "wrap") as path:
        connection.connect(path)
    connection.sendall(eval(sys.argv[1]))
    held.append(connection)
pathlib.Path("sent").touch()
launch.wait()
if os.fork() == 0:
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    pathlib.Path("holds").write_text(f"{os.getpid()}")
    time.sleep(600)
while not pathlib.Path("holds").exists() or not pathlib.Path("holds").read_text():
    time.sleep(0.01)
"""
"""A tool that starts a launch, sends a message to `wrap` meanwhile, and leaves a process that is
still connected."""


@pytest.mark.parametrize("words", ["b''", "b'\\xff'", "b'1' * 100000", "'\\u00b2\\n'.encode()"])
def test_other_words_than_a_launchs_change_nothing(workshop: Path, words: str) -> None:
    """Training stays supervised, and idle connections aren't waited for."""
    (workshop / "tool.py").write_text(CONNECTS)
    run = (PROGRAMS / "stubborn.py", workshop, "SIGTERM")
    process = begin(workshop, sys.executable, "tool.py", words, *run)
    wait_for((workshop / "sent").exists)
    assert process.poll() is None
    process.send_signal(signal.SIGUSR1)
    wait_for((workshop / "signals-0").exists)
    (workshop / "finish").touch()
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "itself failed" not in output
    for name in ("holds", "grandchild-0"):
        os.kill(int((workshop / name).read_text()), signal.SIGKILL)


def test_no_other_process_can_connect(workshop: Path) -> None:
    """This user's processes outside the command are refused."""
    show = "import os, time; print(os.environ['SAFE_LAUNCH_WRAP_SOCKET'], flush=True); input()"
    process = subprocess.Popen(
        [SAFE_LAUNCH, "wrap", "--", sys.executable, "-c", show],
        cwd=workshop,
        env=environment(workshop),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert folder.stat().st_mode & 0o777 == 0o700
    with socket.socket(socket.AF_UNIX) as connection:
        with at_folder(folder, wrap_protocol.NAME) as path:
            connection.connect(path)
        assert connection.recv(1) == b""
    process.communicate("\n")
    assert process.returncode == 0
    assert not folder.exists()


def test_an_error_of_ours_leaves_nobody(workshop: Path) -> None:
    """No process runs on unsupervised, as the message states."""
    broken = "import safe_launch.commands.wrap as it\nfrom safe_launch.cli import main\n"
    broken += "it.code_of = lambda _: 1 / 0\nmain()\n"
    script = f"torchrun --nproc_per_node=1 {PROGRAMS / 'says.py'}; touch went-on; exec sleep 600"
    process = subprocess.run(
        [sys.executable, "-c", broken, "wrap", "--log-dir=runs", "--", "sh", "-c", script],
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 70
    assert "no worker is left behind" in process.stderr
    wait_for(lambda: gone(workshop))


def test_a_stop_before_any_launch(workshop: Path) -> None:
    """A command without a launch is ended like any other; a stubborn one is killed."""
    script = "trap '' TERM; touch ready-0; while :; do sleep 1; done"
    process = begin(workshop, "sh", "-c", script, own=FAST)
    ready(workshop, 1)
    process.terminate()
    output, _ = process.communicate()
    assert process.returncode == 143, output
    wait_for(lambda: gone(workshop))


def test_a_launch_that_cant_be_ours_is_told(workshop: Path) -> None:
    """An interpreter ignores PYTHONPATH: torchrun runs, and wrap reports that."""
    done = wrap(workshop, sys.executable, TOOL, "isolated", 2, PROGRAMS / "says.py")
    assert done.returncode == 0, done.stderr
    assert said(workshop, 0)["SAFE_LAUNCH_PRESET"] is None
    assert UNSEEN in done.stderr


def test_accelerate_without_a_launch(workshop: Path) -> None:
    """On CPUs it starts one process itself: a message names the option for more."""
    (workshop / "train.py").write_text("import os\nassert 'WORLD_SIZE' not in os.environ\n")
    words = ("accelerate", "launch", "--cpu", "--num_processes=2", "train.py")
    done = wrap(workshop, *words)
    assert done.returncode == 0, done.stderr
    assert UNSEEN in done.stderr
    assert "accelerate launch starts one process on CPUs" in " ".join(done.stderr.split())


def test_another_python_without_safe_launch(workshop: Path) -> None:
    """A tool in another environment can't launch; the advice is printed."""
    venv.create(workshop / "other")
    python = workshop / "other/bin/python"
    done = wrap(workshop, python, "-m", "torch.distributed.run", PROGRAMS / "says.py")
    assert done.returncode == 64
    assert f"safe-launch isn't installed for {python}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "no-such-tool"], "`no-such-tool` isn't on PATH"),
        (["--", "./no-such-tool"], "`./no-such-tool` isn't a program"),
        (["--"], "no command is given"),
        ([], "no command is given"),
        (["--fix=once"], "no command is given"),
        (["no-such-tool", "--", "true"], "`no-such-tool` isn't on PATH"),
        (["--nprox=2", "--", "true"], "--nprox"),
        (["--nprox=2", "true"], "--nprox"),
    ],
)
def test_what_cant_be_wrapped(workshop: Path, arguments: list[str], words: str) -> None:
    """One line has the fault, and no command is started."""
    done = subprocess.run(
        [SAFE_LAUNCH, "wrap", *arguments],
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        ["train.py"],
        ["--nnodes=2", "--node-rank=1", "--master-addr=host", "--master-port=1", "train.py", "-x"],
        ["--standalone", "--nproc-per-node=gpu", "-m", "package.module", "--standalone"],
        ["--no-python", "--tee=3", "--rdzv-conf=join_timeout=3,is_host=1", "prog", "a b", ""],
        ["--rdzv-endpoint=h:1", "--rdzv-backend=c10d", "--rdzv-id=x", "--max-restarts=3", "t.py"],
        ["--signals-to-handle=SIGTERM,SIGUSR1", "--local-ranks-filter=0,1", "--run-path", "t.py"],
    ],
)
def test_a_call_becomes_a_command_line(line: list[str]) -> None:
    """Options parsed by torchrun are joined again with the same meaning."""
    from torch.distributed.run import get_args_parser

    options = get_args_parser().parse_args(line)
    again = inner_launch.as_arguments(get_args_parser(), options)
    assert get_args_parser().parse_args(again) == options
    assert len(again) == len(line)


def test_an_option_of_torch_distributed_launchs() -> None:
    """It passes the local rank first, without --use-env, which torchrun lacks."""
    from torch.distributed import launch, run

    options = launch.parse_args(["--use-env", "train.py", "a"])
    assert inner_launch.as_arguments(run.get_args_parser(), options) == ["train.py", "a"]
    options = launch.parse_args(["train.py", "a"])
    words = inner_launch.as_arguments(run.get_args_parser(), options)
    assert words == ["train.py", "--local-rank=${local_rank}", "a"]


def test_the_environment_comes_back() -> None:
    """Unhooking removes the hook's variables and keeps later changes."""
    for path in ({}, {"PYTHONPATH": "/a:/b"}):
        before = {"HOME": "/root", **path}
        hooked = wrap_protocol.hooked(before, "id", Path("/sockets"), ["--fix", "once"])
        assert wrap_protocol.unhooked(hooked) == {**before, wrap_protocol.MARK: "id"}
    hooked = wrap_protocol.hooked({}, "id", Path("/sockets"), [])
    hooked["PYTHONPATH"] = f"/new:{hooked['PYTHONPATH']}"
    assert wrap_protocol.unhooked(hooked)["PYTHONPATH"] == "/new"
