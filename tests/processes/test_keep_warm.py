"""Servers kept for the next launch: when they are used, when not, and when they end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import psutil
import pytest
from safe_launch.workers.forkserver import warm_servers
from support.processes import environment, workshop  # noqa: F401 - a fixture
from support.stacks import CURRENT
from support.waiting import wait_for

FRESH = "import time\nSTAMP = time.time_ns()\n"
"""A module that records its time of import."""
SCRIPT = "import heavy\nprint(f'{heavy.STAMP}\\n', end='', flush=True)\n"


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The launcher's output, as one line."""
        return " ".join(self.err.replace("[safe-launch]", "").split())


@dataclass(frozen=True)
class Shell:
    """A user's session with several launches in turn.

    Attributes:
        folder: the working folder.
        bash: the session's leader.
    """

    folder: Path
    bash: subprocess.Popen[str]

    def begin(self, *command: object, stdin: str = "/dev/null", **variables: object) -> None:
        """Starts a command."""
        for name in ("out", "err", "code"):
            (self.folder / name).unlink(missing_ok=True)
        assigned = [f"{name}={value}" for name, value in variables.items()]
        words = shlex.join(["env", *assigned, *map(str, command)])
        assert self.bash.stdin is not None
        self.bash.stdin.write(f"{words} <{stdin} >out 2>err; echo $? >code.new; mv code.new code\n")
        self.bash.stdin.flush()

    def done(self) -> Done:
        """Waits for a command's end."""
        wait_for((self.folder / "code").exists)
        code, out, err = ((self.folder / name).read_text() for name in ("code", "out", "err"))
        return Done(int(code), out, err)

    def launch(self, *arguments: object, stdin: str = "/dev/null", **variables: object) -> Done:
        """A complete launch, of two workers by default."""
        self.begin(*LAUNCH, *(arguments or ("train.py",)), stdin=stdin, **variables)
        return self.done()

    def kept(self) -> list[int]:
        """Pids of the kept servers."""
        self.begin(CURRENT.bin / "safe-launch", "warm", "--json")
        listed = json.loads(self.done().out)
        own = {process.pid for process in psutil.process_iter() if is_kept(process, self.folder)}
        entries = [entry for entry in listed if entry["pid"] in own]  # other tests have their own
        assert all(entry["bytes"] > 1 << 20 for entry in entries)
        return [entry["pid"] for entry in entries]


LAUNCH = (CURRENT.bin / "safe-launch", "--nproc=2", "--keep-warm=600", "--log-dir=logs")


@pytest.fixture
def shell(workshop: Path) -> Iterator[Shell]:  # noqa: F811 - the fixture
    """A shell in a folder with a script and an installed module."""
    packages = workshop / "site-packages"
    packages.mkdir()
    (packages / "heavy.py").write_text(FRESH)
    (workshop / "train.py").write_text(SCRIPT)
    with subprocess.Popen(
        ["bash"],
        stdin=subprocess.PIPE,
        cwd=workshop,
        env=environment(workshop, PYTHONPATH=packages),
        start_new_session=True,
        text=True,
    ) as bash:
        yield Shell(workshop, bash)
        kept = [process.pid for process in psutil.process_iter() if is_kept(process, workshop)]
        bash.kill()
    wait_for(lambda: not any(map(psutil.pid_exists, kept)))


def is_kept(process: psutil.Process, folder: Path) -> bool:
    """Whether a process is a kept server of launches in this folder."""
    try:
        is_here = process.environ().get("WORKSHOP") == str(folder)
        return is_here and process.name() == "warm-server"
    except psutil.Error:
        return False


def waiting(folder: Path) -> list[int]:
    """The kept servers that wait for a launch, by their sockets."""
    variables = {"TMPDIR": str((folder / "tmp").resolve())}
    with mock.patch.dict(os.environ, variables), mock.patch("tempfile.tempdir", None):
        pids = [server.pid for server in warm_servers.find()]
    return [pid for pid in pids if psutil.pid_exists(pid) and is_kept(psutil.Process(pid), folder)]


def stamps(done: Done) -> set[str]:
    """When the workers' module was imported."""
    assert done.code == 0, done.err
    return {line for line in done.out.splitlines() if line.isdecimal()}


def test_the_second_launch_uses_what_the_first_has_imported(shell: Shell) -> None:
    """With new arguments, input, mark and output; a third launch, too."""
    (shell.folder / "site-packages" / "heavy.py").write_text(FRESH + "print('imported')\n")
    (shell.folder / "train.py").write_text(
        SCRIPT + "import os, sys\nprint(sys.argv, sys.orig_argv[2:], os.getcwd())\n"
        "print('mark', os.environ['SAFE_LAUNCH_RUN_ID'], os.environ['SHLVL'])\n"
        "print(sys.stdin.read() if os.environ['RANK'] == '0' else '')\n"
    )
    (shell.folder / "asked").write_text("the input")
    first = shell.launch("train.py", "--lr", 1, SHLVL=1)
    second = shell.launch("train.py", "--lr", 2, stdin="asked", SHLVL=2)
    third = shell.launch("train.py")
    assert stamps(first) == stamps(second) == stamps(third)
    assert len(stamps(first)) == 1
    words = "['train.py', '--lr', '2']"
    assert second.out.count(f"{words} {words} {shell.folder}\n") == 2
    assert second.out.count("imported\n") == 2
    assert "the input" in second.out
    printed = (first.out + second.out).splitlines()
    marks = [line.split()[1:] for line in printed if line.startswith("mark ")]
    assert len({mark for mark, _ in marks}) == 2
    assert [level for _, level in marks] == ["1", "1", "2", "2"]
    assert len(shell.kept()) == 1
    assert "imported" not in first.err + second.err


def edit_package(folder: Path) -> None:
    """Replaces the text by one of equal length and restores the times."""
    path = folder / "site-packages" / "heavy.py"
    before = path.stat()
    path.write_text(path.read_text().replace("import time\n", "import time \n")[:-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def install_package(folder: Path) -> None:
    """Installs a package that imports may have looked for."""
    (folder / "site-packages" / "optional.py").touch()


def shadow_module(folder: Path) -> None:
    """Adds a user's module that an import would find first."""
    (folder / "optional.py").touch()


def write_data(folder: Path) -> None:
    """Writes a file that the import looked for in vain."""
    (folder / "data.json").touch()


def import_first(folder: Path) -> None:
    """Adds an import before the script's others."""
    (folder / "train.py").write_text(f"import json\n{SCRIPT}")


def import_less(folder: Path) -> None:
    """Removes the script's first import of the module."""
    (folder / "train.py").write_text("print('nothing')\nopen('x', 'w').close()\n" + SCRIPT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (edit_package, "site-packages/heavy.py has changed"),
        (install_package, "site-packages has changed"),
        (shadow_module, "has other modules: optional"),
        (write_data, "data.json has changed"),
        (import_first, "the script's first imports have changed"),
        (import_less, "the script's first imports have changed"),
    ],
)
def test_what_has_changed_is_imported_anew(
    shell: Shell, change: Callable[[Path], None], reason: str
) -> None:
    """The change is reported, and the kept server is replaced."""
    reads = "\ntry:\n    open('data.json')\nexcept OSError:\n    pass\n"
    with (shell.folder / "site-packages" / "heavy.py").open("a") as file:
        file.write(reads)
    first = shell.launch()
    change(shell.folder)
    second = shell.launch()
    assert stamps(first) != stamps(second)
    assert "imported anew" in second.said
    assert reason in second.said


def test_other_variables_are_imported_with_anew(shell: Shell) -> None:
    """Any variable counts: native libraries read them unseen."""
    first, second = shell.launch(MODE="a"), shell.launch(MODE="b")
    assert stamps(first) != stamps(second)
    assert "imported anew: MODE differs" in second.said


def test_an_import_that_reads_the_arguments_has_them(shell: Shell) -> None:
    """Only equal arguments allow reuse; a module that keeps them sees the script's."""
    reads = "import sys\nfrom sys import argv\nVALUE = sys.argv[-1]\n"
    (shell.folder / "site-packages" / "heavy.py").write_text(reads + FRESH)
    (shell.folder / "train.py").write_text(f"{SCRIPT}print(heavy.VALUE, heavy.argv)\n")
    first, same = shell.launch("train.py", "a"), shell.launch("train.py", "a")
    other = shell.launch("train.py", "b")
    assert stamps(first) == stamps(same) != stamps(other)
    assert "an import reads the arguments" in other.said
    assert same.out.count("a ['train.py', 'a']") == other.out.count("b ['train.py', 'b']") == 2


def test_an_import_that_reads_the_rank_isnt_shared_between_two(shell: Shell) -> None:
    """A single worker may share it with the next launch."""
    (shell.folder / "site-packages" / "heavy.py").write_text(
        f"{FRESH}import os\nRANK = os.environ.get('RANK')\n"
    )
    (shell.folder / "train.py").write_text(f"{SCRIPT}print('rank', heavy.RANK)\n")
    alone = shell.launch("--nproc=1", "train.py")
    two = shell.launch("-v", "--nproc=2", "train.py")
    assert stamps(alone).isdisjoint(stamps(two))
    assert "reads RANK, which differs between ranks" in two.said
    assert {"rank 0", "rank 1"} <= set(two.out.splitlines())


def test_edits_of_ones_own_files_are_no_reason(shell: Shell) -> None:
    """The user's files aren't preloaded; new imports run in the next launch."""
    (shell.folder / "own.py").write_text("import heavy\nVALUE = 1\n")
    (shell.folder / "train.py").write_text("import own\n" + SCRIPT + "print('value', own.VALUE)\n")
    first = shell.launch()
    (shell.folder / "own.py").write_text("import heavy\n\nVALUE = 2\n")
    (shell.folder / "outputs").mkdir()
    second = shell.launch()
    (shell.folder / "train.py").write_text("import own\n" + SCRIPT + "import wave\nprint(wave)\n")
    third = shell.launch()
    assert stamps(first) == stamps(second) == stamps(third)
    assert "value 2" in second.out
    assert "module 'wave'" in third.out
    assert "anew" not in second.said + third.said


def test_a_failure_is_told_and_restarted_as_in_a_first_launch(shell: Shell) -> None:
    """The workers are the server's children, which reports their exit codes."""
    (shell.folder / "train.py").write_text(
        SCRIPT + "import os, signal, sys\nfirst = os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'\n"
        "if sys.argv[1:] == ['code'] and os.environ['RANK'] == '1': os._exit(7)\n"
        "if sys.argv[1:] == ['signal'] and os.environ['RANK'] == '1':\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "if sys.argv[1:] == ['once'] and first: os._exit(7)\n"
    )
    first = shell.launch()
    failed = shell.launch("train.py", "code")
    assert failed.code == 7
    assert "rank 1 left with exit code 7" in failed.said
    killed = shell.launch("train.py", "signal")
    assert killed.code == 128 + signal.SIGSEGV
    assert "rank 1 was ended by SIGSEGV" in killed.said
    restarted = shell.launch("--max-restarts=1", "train.py", "once")
    assert "attempt 2: succeeded" in restarted.said
    assert stamps(first) == stamps(restarted)


def test_what_is_kept_ends_by_itself_by_command_and_with_the_session(shell: Shell) -> None:
    """It is listed until then."""
    name = f"once-{os.getpid()}.py"  # servers kept by other test runs don't count
    (shell.folder / "train.py").rename(shell.folder / name)
    shell.begin(*LAUNCH, "--keep-warm=2", name)
    seen: set[int] = set()
    wait_for(lambda: seen.update(waiting(shell.folder)) or (shell.folder / "code").exists())
    (pid,) = seen
    assert shell.done().code == 0
    wait_for(lambda: not psutil.pid_exists(pid))
    shell.launch(name)
    (pid,) = shell.kept()
    shell.begin(CURRENT.bin / "safe-launch", "warm", "stop", f"other-{name}")
    assert "nothing is kept" in shell.done().out
    assert shell.kept() == [pid]
    shell.begin(CURRENT.bin / "safe-launch", "warm", "stop", name)
    assert shell.done().out == f"ended: {name}\n"
    wait_for(lambda: not psutil.pid_exists(pid))
    assert shell.kept() == []
    shell.launch(name)
    (pid,) = shell.kept()
    shell.bash.kill()
    wait_for(lambda: not psutil.pid_exists(pid))


def test_a_killed_launcher_leaves_nothing_but_what_was_kept(shell: Shell) -> None:
    """The next launch uses it."""
    (shell.folder / "train.py").write_text(
        SCRIPT + "import os, sys, time, pathlib\n"
        "pathlib.Path(f'pid{os.environ[\"RANK\"]}').write_text(f'{os.getpid()}')\n"
        "time.sleep(600 if sys.argv[1:] else 0)\n"
    )
    first = shell.launch()
    kept = shell.kept()
    for number in (0, 1):
        (shell.folder / f"pid{number}").unlink()
    shell.begin(*LAUNCH, "train.py", "wait")
    pids = [shell.folder / "pid0", shell.folder / "pid1"]
    wait_for(lambda: all(path.exists() and path.read_text() for path in pids))
    workers = [int(path.read_text()) for path in pids]
    server = psutil.Process(workers[0]).ppid()
    assert server not in kept
    (launcher,) = [
        process
        for process in psutil.Process(shell.bash.pid).children()
        if "safe-launch" in " ".join(process.cmdline())
    ]
    launcher.kill()
    wait_for(lambda: not any(map(psutil.pid_exists, [server, *workers])))
    assert shell.done().code == 128 + signal.SIGKILL
    assert shell.kept() == kept
    assert stamps(shell.launch()) == stamps(first)


def test_an_interrupted_launch_leaves_what_it_has_imported(shell: Shell) -> None:
    """Developers end most launches by Ctrl-C."""
    (shell.folder / "train.py").write_text(
        SCRIPT + "import sys, time\ntime.sleep(600 if sys.argv[1:] else 0)\n"
    )
    shell.begin(*LAUNCH, "train.py", "wait")
    out = shell.folder / "out"
    wait_for(lambda: out.exists() and len(out.read_text().splitlines()) == 2)
    for process in psutil.Process(shell.bash.pid).children():
        process.send_signal(signal.SIGINT)
    stopped = shell.done()
    assert stopped.code == 130, stopped.err
    assert stopped.out.split()[0] in stamps(shell.launch())


def test_two_launches_at_once_have_a_process_each(shell: Shell) -> None:
    """The kept server stays as it was after the imports."""
    first = shell.launch()
    both = f"{shlex.join(map(str, LAUNCH))} train.py"
    listening = "env --default-signal=INT,QUIT"  # a shell's background jobs ignore them
    shell.begin("bash", "-c", f"{listening} {both} & {both}; wait $!")
    done = shell.done()
    assert stamps(done) == stamps(first)
    assert len(done.out.split()) == 4


def test_what_cant_be_kept_is_told(shell: Shell) -> None:
    """For example a thread, or files changed during the import; the launch continues."""
    heavy = shell.folder / "site-packages" / "heavy.py"
    heavy.write_text(FRESH + "import os\nos.utime(__file__)\n")
    changed = shell.launch()
    assert stamps(changed)
    assert "heavy.py has changed while it was imported" in changed.said
    heavy.write_text(
        FRESH + "import threading\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    assert "an import has started 1 thread" in shell.launch("-v", "train.py").said
    assert shell.kept() == []
    shell.launch("--start-method=spawn", "train.py")
    assert (
        "such workers do their imports themselves"
        in shell.launch("--start-method=spawn", "train.py").said
    )
    assert shell.kept() == []


def test_without_the_option_nothing_is_kept_or_used(shell: Shell) -> None:
    """Servers kept by other launches aren't used either."""
    first = shell.launch()
    second = shell.launch("--keep-warm=0", "train.py")
    assert stamps(first) != stamps(second)
    assert len(shell.kept()) == 1
