"""Workers forked from a process with preloaded imports: their state, and when they aren't."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safe_launch.workers.forkserver.client import Server
from safe_launch.workers.start import ENTRY
from support.stacks import CURRENT
from support.waiting import LONG, wait_for

# A forked process has the variables with which its server was started.
IS_FORKED = (
    "import os, pathlib\n"
    "forked = b'LOCAL_RANK=' not in pathlib.Path('/proc/self/environ').read_bytes()\n"
)


def write(folder: Path, **texts: str) -> None:
    """Writes modules by name."""
    for name, text in texts.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder that counts as installed packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return folder


def launch(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Launches two workers in the folder."""
    return CURRENT.run(
        "safe-launch",
        *("--log-dir", folder / "runs", "--nproc", "2", *arguments),
        cwd=folder,
        PYTHONPATH=str(folder / "site-packages"),
        **variables,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The launcher's output, as one line."""
    return " ".join(done.stderr.replace("[safe-launch]", "").split())


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The workers' output, unordered; both must have succeeded."""
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_workers_are_forked_unless_fresh_ones_are_asked_for(tmp_path: Path) -> None:
    """Either way they are the launcher's children; the launcher has no torch."""
    write(
        tmp_path,
        train=IS_FORKED
        + "import sys, torch\n"
        + "parent = f'/proc/{os.getppid()}'\n"
        + "is_ours = 'safe-launch' in pathlib.Path(parent, 'cmdline').read_text()\n"
        + "has_torch = 'libtorch' in pathlib.Path(parent, 'maps').read_text()\n"
        + "print(forked, is_ours, has_torch, sys.argv[1:])\n",
    )
    forked = launch(tmp_path, "train.py", "--lr", "1")
    assert lines(forked) == ["True True False ['--lr', '1']"] * 2
    fresh = launch(tmp_path, "--start-method", "spawn", "train.py", "--lr", "1")
    assert lines(fresh) == ["False True True ['--lr', '1']"] * 2
    assert "imports itself" not in said(forked) + said(fresh)


@pytest.mark.parametrize("target", [("train.py",), ("-m", "train")])
def test_an_import_sees_the_scripts_arguments(
    tmp_path: Path, installed: Path, target: tuple[str, ...]
) -> None:
    """`def parse(args=sys.argv[1:])` reads them at import, not the server's."""
    write(installed, early="import sys\ndef parse(args=sys.argv[1:]): return args\n")
    write(tmp_path, train="import early\n" + IS_FORKED + "print(forked, early.parse())\n")
    done = launch(tmp_path, *target, "--lr", "1")
    assert lines(done) == ["True ['--lr', '1']"] * 2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_parent_package_sees_the_scripts_arguments(tmp_path: Path, method: str) -> None:
    """Its import finds the module, with `-m` as argv[0], as in Python."""
    write(tmp_path, **{"own/__init__": "import sys\nSEEN = [*sys.argv]\n"})
    write(tmp_path, **{"own/train": "import own, sys\nprint(own.SEEN, sys.argv[1:])\n"})
    done = launch(tmp_path, "--start-method", method, "-m", "own.train", "--lr", "1")
    assert lines(done) == ["['-m', '--lr', '1'] ['--lr', '1']"] * 2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("target", [("train.py",), ("-m", "train")])
def test_an_import_keeps_the_scripts_own_main(
    tmp_path: Path, installed: Path, method: str, target: tuple[str, ...]
) -> None:
    """For example dill's, which pickles the script's definitions by it."""
    file = "getattr(kept, '__file__', None)"
    write(installed, keeps=f"import __main__ as kept\nFILE = {file}\n")
    write(
        tmp_path,
        train="import keeps, sys\nclass Own: pass\n"
        "is_own = keeps.kept.Own is Own and keeps.kept is sys.modules['__main__']\n"
        "print(is_own, keeps.FILE == __file__)\n",
    )
    done = launch(tmp_path, "--start-method", method, *target)
    knows_file = target == ("train.py",) or method == "spawn"
    assert lines(done) == [f"True {knows_file}"] * 2


def test_an_imports_own_handler_stays(tmp_path: Path, installed: Path) -> None:
    """The launcher resets only the signals that it ignored itself."""
    handled = "signal.signal(signal.SIGUSR1, lambda *_: print('handled', flush=True))"
    write(installed, handles=f"import signal\n{handled}\n")
    raised = "import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n"
    write(tmp_path, train="import handles\n" + IS_FORKED + raised + "print(forked)\n")
    assert lines(launch(tmp_path, "train.py")) == ["True", "True", "handled", "handled"]


def test_forked_workers_meet_and_train(tmp_path: Path) -> None:
    """The store is available, though the launcher doesn't host it."""
    write(
        tmp_path,
        train=IS_FORKED
        + "import torch, torch.distributed as dist\n"
        + "dist.init_process_group('gloo')\n"
        + "total = torch.ones(1)\n"
        + "dist.all_reduce(total)\n"
        + "print(forked, total.item(), dist.get_world_size())\n"
        + "dist.destroy_process_group()\n",
    )
    assert lines(launch(tmp_path, "train.py")) == ["True 2.0 2"] * 2


def test_workers_share_no_random_state(tmp_path: Path) -> None:
    """Unless the script seeds them, they draw differently, like separate interpreters."""
    write(
        tmp_path,
        train=IS_FORKED
        + "import random, numpy, torch, uuid\n"
        + "print(forked, random.random())\n"
        + "print(forked, numpy.random.rand())\n"
        + "print(forked, torch.rand(1).item())\n"
        + "print(forked, uuid.uuid4())\n",
    )
    printed = lines(launch(tmp_path, "train.py"))
    assert len(set(printed)) == len(printed) == 8
    assert all(line.startswith("True") for line in printed)


def test_workers_of_a_node_share_the_seed_of_hashes(tmp_path: Path) -> None:
    """An interpreter draws it at start: new processes differ, as under torchrun."""
    write(tmp_path, train="print(hash('a word'), hash('another'))\n")
    assert len(set(lines(launch(tmp_path, "train.py")))) == 1
    assert len(set(lines(launch(tmp_path, "--start-method=spawn", "train.py")))) == 2


def test_an_interrupt_while_a_worker_is_set_up_waits(tmp_path: Path, installed: Path) -> None:
    """The script hasn't begun: the interrupt is shown without our frames."""
    interrupted = "import os, signal\ndef seed():\n    os.kill(os.getpid(), signal.SIGINT)\n"
    write(installed / "numpy", __init__="", random=interrupted)
    write(tmp_path, train="import numpy.random\nprint('unreached')\n")
    done = launch(tmp_path, "--max-restarts", "0", "train.py")
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("KeyboardInterrupt") == 2
    assert "launcher/" not in done.stderr
    assert "unreached" not in done.stdout


def test_what_an_import_prints_comes_from_every_worker(tmp_path: Path, installed: Path) -> None:
    """Even if it ran once for both; a user's module runs in each worker."""
    write(installed, loud="import os\nprint('loud', flush=True)\nos.write(2, b'and clear\\n')\n")
    write(tmp_path, own="print('own')\n", train="import loud\nimport own\n" + IS_FORKED)
    done = launch(tmp_path, "train.py")
    assert lines(done) == ["loud"] * 2 + ["own"] * 2
    assert done.stderr.count("and clear") == 2


READS = "import os\nMODE = os.environ.get('LOUD_MODE', 'nothing')\n"


@pytest.mark.parametrize(
    ("first", "repeats"),
    [
        ("os.environ['LOUD_MODE'] = 'set'", 1),
        ("os.environ.setdefault('LOUD_MODE', 'set')", 1),
        ("os.environ.update({'LOUD_MODE': 'set'})", 1),
        ("value = [os.environ.update({'LOUD_MODE': 'set'})]", 1),
        ("def prepare():\n    os.environ['LOUD_MODE'] = 'set'\nprepare()", 1),
        ("def prepare():\n    os.environ['LOUD_MODE'] = 'set'\nignored = prepare()", 1),
        ("import own", 1),
        ("from own import prepare\nignored = prepare()", 1),
        ("class Mode:\n    os.environ['LOUD_MODE'] = 'set'", 2),
    ],
)
def test_a_variable_that_the_script_sets_first_holds(
    tmp_path: Path, installed: Path, first: str, repeats: int
) -> None:
    """A preloaded import that reads it makes the worker start anew."""
    write(installed, loud=READS)
    write(
        tmp_path,
        own="import os\nos.environ['LOUD_MODE'] = 'set'\n"
        "def prepare():\n    os.environ['LOUD_MODE'] = 'set'\n"
        if first == "import own"
        else "import os\ndef prepare():\n    os.environ['LOUD_MODE'] = 'set'\n",
        train=f"import os\nprint('begins', flush=True)\n{first}\nimport loud\nprint(loud.MODE)\n"
        "import sys\nprint('guarded', 'safe_launch.guards' in sys.modules)\n",
    )
    done = launch(tmp_path, "-v", "train.py")
    assert lines(done) == ["begins"] * 2 * repeats + ["guarded True"] * 2 + ["set"] * 2
    words = "the script sets LOUD_MODE after a preloaded module had read it"
    assert (words in said(done)) == (repeats == 2)


def test_a_variable_that_is_set_after_the_imports_is_left_alone(
    tmp_path: Path, installed: Path
) -> None:
    """Under any launcher it is too late for earlier imports."""
    write(installed, loud=READS)
    write(
        tmp_path,
        train=IS_FORKED
        + "import loud\n"
        + "def main():\n    os.environ['LOUD_MODE'] = 'late'\n    print(forked, loud.MODE)\n"
        + "main()\n",
    )
    assert lines(launch(tmp_path, "train.py")) == ["True nothing"] * 2


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (
            (
                "import threading, time\n"
                "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
            ),
            "an import has started 1 thread",
        ),
        ("import os\nos._exit(3) if 'MASTER_PORT' not in os.environ else None\n", "has ended"),
        ("import torch\ntorch.manual_seed(1)\n", "an import has seeded torch's random numbers"),
        ("import numpy\nnumpy.random.seed(1)\n", "an import has seeded numpy's random numbers"),
    ],
)
def test_where_forking_isnt_safe_workers_are_fresh(
    tmp_path: Path, installed: Path, module: str, reason: str
) -> None:
    """The reason is reported."""
    write(installed, odd=module)
    write(tmp_path, train="import odd\n" + IS_FORKED + "print(forked)\n")
    done = launch(tmp_path, "-v", "train.py")
    assert lines(done) == ["False"] * 2
    assert "every worker does its imports itself: " in said(done)
    assert reason in said(done)


def test_a_package_that_reads_a_workers_own_rank_is_left_to_the_workers(
    tmp_path: Path, installed: Path
) -> None:
    """In the first attempt all imports are; in the next, only that one."""
    write(installed, ranked="import os, other\nRANK = os.environ.get('RANK')\n", other="")
    first = "import sys\nknown = [*sys.modules]\nimport ranked\n"
    first += "print('ranked' in known, 'other' in known)\n"
    rest = TRAIN.replace("FIRST", "").replace("import late", "").replace("late.use()", "")
    write(tmp_path, train=first + rest.replace("print('early'", "('early'"))
    done = launch(tmp_path, "-v", "--max-restarts", "1", "train.py")
    assert said(done).count("every worker does its imports itself: ranked reads RANK, which") == 1
    assert lines(done) == ["False False"] * 2 + ["False True"] * 2


def test_libraries_are_asked_to_start_no_threads(tmp_path: Path, installed: Path) -> None:
    """During preloading only; the script doesn't see the variables."""
    name = "JE_ARROW_MALLOC_CONF"
    write(installed, carries=f"import os\nSEEN = os.environ.get({name!r})\n")
    print_all = f"import os\nprint(forked, carries.SEEN, os.environ.get({name!r}))\n"
    write(tmp_path, train="import carries\n" + IS_FORKED + print_all)
    assert lines(launch(tmp_path, "train.py")) == ["True background_thread:false None"] * 2


def test_the_workers_are_fresh_again_where_the_server_is_gone(tmp_path: Path) -> None:
    """The server was killed between two attempts."""
    write(
        tmp_path,
        train=IS_FORKED
        + "import signal, sys, time\n"
        + "print(forked, flush=True)\n"
        + "pathlib.Path('up-' + os.environ['RANK']).touch()\n"
        + "while not pathlib.Path('up-1').exists():\n    time.sleep(0.01)\n"
        + "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        + "    me = pathlib.Path('/proc/self/cmdline').read_bytes()\n"
        + "    parent = str(os.getppid())\n"
        + "    pool = pathlib.Path(f'/proc/{parent}/task/{parent}/children').read_text().split()\n"
        + "    alike = [p for p in pool if pathlib.Path(f'/proc/{p}/cmdline').read_bytes() == me]\n"
        + "    if os.environ['RANK'] == '0':\n"
        + "        stat = {p: pathlib.Path(f'/proc/{p}/stat').read_text().split() for p in alike}\n"
        + "        oldest = min(alike, key=lambda p: int(stat[p][-31]))  # its starttime\n"
        + "        os.kill(int(oldest), signal.SIGKILL)\n"
        + "        raise RuntimeError('once')\n"
        + "    time.sleep(600)\n",
    )
    done = launch(tmp_path, "-v", "--max-restarts", "1", "train.py")
    assert lines(done) == ["False"] * 2 + ["True"] * 2
    assert "the process that imports for the workers has ended" in said(done)


def test_an_environment_that_imports_read_restarts_the_server(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan's changes apply to imports, too."""
    write(installed, loud=READS)
    write(
        tmp_path,
        train="import os, loud\nos.write(1, f'{os.environ[\"RANK\"]} {loud.MODE}\\n'.encode())\n",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    command = (sys.executable, "-u", str(ENTRY), "script", "train.py")
    server = Server("a-mark", command, {"LOUD_MODE": "a"})
    server.start()
    try:
        before = server.pids
        for mode in ("a", "b"):
            server.prepare()
            reader, writer = os.pipe()
            environments = {
                rank: {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOUD_MODE": mode}
                for rank in (0, 1)
            }
            forked = server.fork(environments, dict.fromkeys(environments, (writer, writer)))
            os.close(writer)
            assert forked is not None, server.problem
            with os.fdopen(reader) as stream:
                assert sorted(stream.read().splitlines()) == [f"0 {mode}", f"1 {mode}"]
            forked.wait(0)
            assert (server.pids == before) == (mode == "a")
    finally:
        server.end()


TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
print('early' if 'late' in sys.modules else 'natural')
dist.init_process_group('gloo')
FIRST
def main():
    import late
    late.use()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    os.environ['THIS'] = 'set after it was read'
    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':
        dist.barrier()
        raise OSError('it passes by itself')
    model(torch.ones(1, 2)).sum().backward()
    dist.destroy_process_group()
main()
"""
"""Fails once after its model exists; prints whether `late` was already imported."""
USE = "\ndef use(): pass\n"
A_THREAD = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"


@pytest.mark.parametrize(
    ("first", "late", "expected"),
    [
        ("", "print('hello'); import os; os.environ.get('THIS')", "early"),
        ("os.environ['THIS'] = 'x'", "import os; os.environ.get('THIS')", "natural"),
        ("", "import torch; torch.rand(1)", "natural"),
        ("", f"import threading, time\n{A_THREAD}", 0),
    ],
)
def test_what_workers_import_later_is_imported_for_the_next(
    tmp_path: Path, installed: Path, first: str, late: str, expected: str
) -> None:
    """Unless preloading it would make a difference."""
    write(tmp_path, train=TRAIN.replace("FIRST", first))
    write(installed, late=late + USE)
    done = launch(tmp_path, "--max-restarts", "1", "train.py")
    assert "imports itself" not in said(done)
    printed = [line for line in lines(done) if line != "hello"]
    assert printed == sorted(["natural"] * 2 + [expected or "natural"] * 2)
    assert done.stdout.count("hello") == 4 * late.count("hello")


FOLLOW = """
import json, os, sys
from dataclasses import asdict
from pathlib import Path
from safe_launch.workers.forkserver.extra_imports import Fork, Report, follow
from safe_launch.workers.forkserver.preload import Preloaded
sys.argv = ["server", "script.py"]
preloaded = Preloaded()
PRELOAD
fork = Fork(preloaded.environment)
if not os.fork():
    fork.watch()
    sys.argv = ["script.py"]
    exec(compile(Path("script.py").read_text(), "script.py", "exec"))
    Path("report").write_text(json.dumps(asdict(fork.report(os.environ))))
    os._exit(0)
os.wait()
print(follow(Report.of(json.loads(Path("report").read_text())), preloaded, None))
"""
"""A server that forks a worker and prints whether it follows it."""


@pytest.mark.parametrize(
    ("first", "late", "problem"),
    [
        ("", "import json", None),
        ("", "import os; os.environ.setdefault('A', '1'); os.environ['A']", None),
        ("os.environ['A'] = '1'", "import os; os.environ.get('B')", None),
        ("os.environ['A'] = '1'", "import os; os.environ.get('A')", "reads A, which differs"),
        ("del os.environ['HERE']", "import os; os.environ.get('HERE')", "reads HERE"),
        ("", "import random; random.random()", None),
        (
            "import random; random.seed(1)",
            "import random; random.random()",
            "late draws random numbers",
        ),
        ("import torch", "import torch; torch.rand(1)", "changes torch's generator"),
        ("", "import signal; signal.signal(signal.SIGUSR1, print)", "changes signals"),
        ("import other; other.f = min", "from other import f", "late.f differs"),
        ("import other; other.f = min", "import other", None),
        ("import other; other.f = lambda: 1", "from other import g", "has replaced other.f"),
        ("import other; other.C.m = lambda self: 1", "", "has replaced other.C.m"),
        ("import other; other.FAST = True", "from other import FAST", "other.FAST differs"),
        ("", "import sys\nif sys.argv[1:]: 1 / 0", "late is imported only by the script"),
        ("", "import sys\nif sys.argv[1:]: import other", "other is imported only by"),
        ("sys.path.insert(0, 'own'); import theirs", "import theirs", "theirs is imported only by"),
        ("torch.set_default_dtype(torch.float64)", "", "torch's defaults"),
        ("torch.set_default_device('meta')", "", "torch's defaults"),
        ("import unsloth", "", "unsloth changes later imports"),
    ],
)
def test_a_server_follows_its_workers_where_that_makes_no_difference(
    tmp_path: Path, installed: Path, first: str, late: str, problem: str | None
) -> None:
    """It preloads a worker's imports unless the script acted before them."""
    write(tmp_path / "own", theirs="")
    write(installed, late=late, theirs="", unsloth="", other="FAST = False\ndef f(): pass\ng = f\n")
    with (installed / "other.py").open("a") as other:
        other.write("class C: pass\n")
    (tmp_path / "script.py").write_text(f"{first}\nimport late\n")
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW.replace("PRELOAD", "import torch" * ("torch" in first))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed), "HERE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    if problem is None:
        assert done.stdout == "None\n"
    else:
        assert problem in done.stdout


def test_nothing_is_left_where_the_launcher_is_killed_while_it_imports(
    tmp_path: Path, installed: Path
) -> None:
    """The server notices during an import."""
    write(
        installed,
        slow="import os, pathlib, time\n"
        "pathlib.Path('importing').write_text(str(os.getpid()))\ntime.sleep(600)\n",
    )
    write(tmp_path, train="import slow\n")
    environment = {**CURRENT.environment(), "PYTHONPATH": str(installed)}
    launcher = subprocess.Popen(
        [CURRENT.bin / "safe-launch", "--log-dir=runs", "--nproc=2", "train.py"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    note = tmp_path / "importing"
    wait_for(lambda: note.is_file() and note.read_text())
    server = os.pidfd_open(int(note.read_text()))
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    ended, _, _ = select.select([server], [], [], LONG)
    os.close(server)
    assert ended


@pytest.mark.parametrize("variables", [{"OMP_NUM_THREADS": "2"}, {"OPENBLAS_NUM_THREADS": "2"}])
def test_numpys_threads_come_with_the_worker(tmp_path: Path, variables: dict[str, str]) -> None:
    """As many as in a new process, though none may run at the fork."""
    write(tmp_path, train=IS_FORKED + "import numpy\nprint(len(os.listdir('/proc/self/task')))\n")
    fresh = launch(tmp_path, "--start-method", "spawn", "train.py", **variables)
    assert lines(launch(tmp_path, "train.py", **variables)) == lines(fresh)


@pytest.mark.parametrize("ending", ["", "import sys\nsys.exit(3)\n", "raise ValueError\n"])
def test_what_an_import_holds_is_taken_apart_at_the_end(
    tmp_path: Path, installed: Path, ending: str
) -> None:
    """Cycles, too: nanobind's modules report leaks at exit."""
    write(
        installed,
        holding="import os\nIMPORTED_BY = os.getpid()\n"
        "class Held:\n"
        "    def __init__(self):\n        self.own = self\n"
        "    def __del__(self, write=os.write):\n        write(1, b'taken apart\\n')\n"
        "held = Held()\n",
    )
    shared = "print(forked and holding.IMPORTED_BY != os.getpid(), flush=True)\n"
    write(tmp_path, script="import holding\n" + IS_FORKED + shared + ending)
    done = launch(tmp_path, "--nproc=1", "script.py")
    assert done.stdout.splitlines()[:2] == ["True", "taken apart"]
