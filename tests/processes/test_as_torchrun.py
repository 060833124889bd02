"""Scripts see no difference between torchrun, plain python, and safe-launch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from safe_launch.evidence import inquiry
from support.launches import environment, launch
from support.stacks import CURRENT, ROOT

PROGRAMS = ROOT / "tests" / "programs"
OURS = ("spawn", "warm")
ADDRESS = re.compile("0x[0-9a-f]+")
COMPILER = shutil.which("g++")
RANDOM = ("python", "numpy", "bytes", "torch", "torch seed")
"""Random values drawn anew by every worker in every run."""
ADDED = re.compile("SAFE_LAUNCH_|CROSS_RANK$|CROSS_SIZE$")
"""Variables of our workers alone: ours, and deepspeed's names for torchrun's values."""
EACH_RUNS_OWN = {
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",  # more signals are forwarded
}
"""torchrun's variables with a different value in each run."""
FAIL = {
    "raises": 1,
    "raises_a_group": 1,
    "own_hook": 1,
    "leaves_with_text": 1,
    "leaves_with_3": 3,
    "leaves_with_minus_1": 255,
    "drops_out": 5,
    "aborts": 134,
    "is_terminated": 143,
    "is_killed": 137,
    "interrupts": 130,
    "falls_too_deep": 1,
}
"""Endings that fail, and a shell's exit code for them."""
SUCCEED = (
    "nothing",
    "leaves_with_none",
    "leaves_with_a_whole_byte",
    "handlers",
    "buffers",
    "finalizers",
    "threads",
    "a_thread_fails",
    "warned",
    "raises_below",
)


def plain(folder: Path, *command: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """The same under python, unbuffered as under torchrun and safe-launch."""
    return subprocess.run(
        [str(CURRENT.bin / "python3"), "-u", *map(str, command)],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        input="",
        check=False,
    )


def seen(folder: Path, ranks: int) -> list[dict[str, Any]]:
    """The record of each rank."""
    found = [json.loads((folder / f"seen-{rank}").read_text()) for rank in range(ranks)]
    for rank in range(ranks):
        (folder / f"seen-{rank}").unlink()
    return found


def common(told: dict[str, Any]) -> dict[str, Any]:
    """A program's record without parts that differ in every run."""
    told = json.loads(json.dumps(told))
    told["environment"] = {
        name: value
        for name, value in told["environment"].items()
        if not ADDED.match(name) and name not in EACH_RUNS_OWN
    }
    for name in RANDOM:
        del told["chances"][name]
    process = told["process"]
    del process["stdin"]  # one rank reads all of it
    for name in ("1", "2"):  # a file, or the launcher's pipe
        del process["descriptors"][name]
    # Ours has a socket, too, for reporting failures, and for inquiries: memory, two signals, and a
    # waiting thread, for which the C library handles one signal of its own, 33 (nptl's SIGSETXID).
    # No child process inherits any of it.
    if "/memfd" in process["descriptors"].values():
        process["native threads"] -= 1
        caught = int(process["masks"]["SigCgt"], 16)
        for number in (inquiry.OF_ALL, inquiry.OF_MAIN, 33):
            caught ^= 1 << (number - 1)
        process["masks"]["SigCgt"] = f"{caught:016x}"
    process["descriptors"] = {
        name: target
        for name, target in process["descriptors"].items()
        if target not in ("socket", "/memfd")
    }
    return told


def test_the_surroundings_of_a_script(tmp_path: Path) -> None:
    """Both ranks see the same surroundings as under torchrun."""
    script, arguments = PROGRAMS / "surroundings.py", ("--text", "two words", "")
    runs = {}
    for way in ("torchrun", *OURS):
        done = launch(way, tmp_path, script, *arguments, ranks=2)
        assert done.code == 0, done.said
        runs[way] = seen(tmp_path, 2)
    for way in OURS:
        for theirs, ours in zip(runs["torchrun"], runs[way], strict=True):
            assert common(ours) == common(theirs)
            missing = set(theirs["environment"]) - set(ours["environment"])
            assert missing == set()
    for found in runs.values():
        assert sorted(one["process"]["stdin"] for one in found) == ["", "a line\n"]
        for name in RANDOM:
            assert found[0]["chances"][name] != found[1]["chances"][name], name
    for name in RANDOM:
        drawn = [one["chances"][name] for found in runs.values() for one in found]
        assert len(set(drawn)) == len(drawn), name


@pytest.mark.parametrize("way", ["torchrun", *OURS])
def test_processes_of_a_script(tmp_path: Path, way: str) -> None:
    """multiprocessing, an executor, data loaders by each start method, torch.compile."""
    done = launch(way, tmp_path, PROGRAMS / "sibling.py", *(("compile",) if COMPILER else ()))
    assert done.code == 0, done.said + "".join(done.err)
    names = {"fork": "__main__", "spawn": "__mp_main__", "forkserver": "__mp_main__"}
    kinds = {
        "fork": "ForkPoolWorker",
        "spawn": "SpawnPoolWorker",
        "forkserver": "ForkServerPoolWorker",
    }
    loaded = [[[0, 1], [1, 1]], [[4, 1], [9, 1]]]
    expected: dict[str, object] = {"executor": [9]} | ({"compiled": 64.0} if COMPILER else {})
    for method, name in names.items():
        expected |= {method: [[1, name, kinds[method]], [4, name, kinds[method]]]}
        expected |= {f"{method} loader": loaded}
    assert seen(tmp_path, 1) == [expected]


def test_endings_that_succeed(tmp_path: Path) -> None:
    """Handlers, buffers, finalizers, threads: in order, with the interpreter's own messages."""
    program, names = PROGRAMS / "endings.py", ",".join(SUCCEED)
    for way in OURS:
        done = launch(way, tmp_path, program, names, ranks=len(SUCCEED))
        assert done.code == 0, done.said
        for rank, name in enumerate(SUCCEED):
            expected = plain(tmp_path, program, names, RANK=rank)
            assert expected.returncode == 0, name
            assert done.out[rank] == expected.stdout, name
            assert ADDRESS.sub("N", done.err[rank]) == ADDRESS.sub("N", expected.stderr), name
        kept = tmp_path / f"kept-{SUCCEED.index('buffers')}"
        assert kept.read_text() == "never flushed by hand"
        kept.unlink()


@pytest.mark.parametrize("name", FAIL)
def test_endings_that_fail(tmp_path: Path, name: str) -> None:
    """The interpreter's exact messages, and a shell's exit code."""
    expected = plain(tmp_path, PROGRAMS / "endings.py", name)
    code = expected.returncode if expected.returncode >= 0 else 128 - expected.returncode
    done = launch("warm", tmp_path, PROGRAMS / "endings.py", name)
    assert done.out == (expected.stdout,)
    # a few of our frames are below the script's, so it reaches slightly less depth
    deep = re.compile(r"(?<=Previous line repeated )\d+")
    assert deep.sub("N", done.err[0]) == deep.sub("N", expected.stderr)
    assert done.code == code == FAIL[name]


SHOWN = """\
import sys
main = sys.modules["__main__"]
print(sys.argv, sys.orig_argv[1:], sys.path)
for name in ("__file__", "__package__", "__cached__", "__name__"):
    print(name, getattr(main, name, "absent"))
spec = main.__spec__
print(None if spec is None else (spec.name, spec.origin, spec.parent))
print(type(main.__loader__).__name__)
import helper
print(helper.__file__, "\\u00e4")
1 / 0
"""


def forms(folder: Path) -> None:
    """Scripts of every form that print their surroundings and then fail."""
    (folder / "helper.py").write_text("")
    (folder / "my folder").mkdir()
    (folder / "real.py").write_bytes(b"\xef\xbb\xbf" + SHOWN.encode())
    (folder / "my folder" / "link").symlink_to(folder / "real.py")
    latin = SHOWN.replace("\\u00e4", "\u00e4")
    (folder / "latin").write_bytes(b"# -*- coding: latin-1 -*-\n" + latin.encode("latin-1"))
    package = folder / "package"
    (package / "inner").mkdir(parents=True)
    for one in (package, package / "inner"):
        (one / "__init__.py").write_text("")
    (package / "__main__.py").write_text("from .inner import part\n" + SHOWN)
    (package / "inner" / "part.py").write_text("from .. import inner\n")
    (package / "inner" / "run.py").write_text("from .part import inner\n" + SHOWN)
    (folder / "bare").mkdir()
    (folder / "bare" / "__main__.py").write_text(SHOWN)
    (folder / "bare" / "helper.py").write_text("")
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("__main__.py", SHOWN)
        archive.writestr("helper.py", "")
    (folder / "broken.py").write_text("def f(:\n    pass\n")


@pytest.mark.parametrize(
    "command",
    [
        ("./my folder/link", "a"),
        ("latin", "a b"),
        ("-m", "package", "-m"),
        ("-m", "package.inner.run", "a"),
        ("bare/", "a"),
        ("all.zip", "a"),
    ],
    ids=["link", "encoding", "package", "module", "folder", "zip"],
)
def test_forms_of_a_script(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A script runs as under python, however it is named; tracebacks are python's."""
    forms(tmp_path)
    expected = plain(tmp_path, *command)
    assert expected.stdout.endswith("\u00e4\n"), expected.stderr
    done = launch("warm", tmp_path, *command)
    assert done.out == (expected.stdout,)
    # python's own frames for `-m` or a folder aren't about the script
    inside = re.sub(r'  File "<frozen runpy>".*\n', "", expected.stderr)
    assert done.err == (inside,)
    assert done.code == 1


def test_scripts_that_cant_run_are_told_before(tmp_path: Path) -> None:
    """By design a syntax error or missing script is one line, before any worker starts."""
    forms(tmp_path)
    for script, words in (
        ("broken.py", "broken.py:1: syntax error: invalid syntax"),
        ("missing.py", "there is no script `missing.py`"),
    ):
        done = launch("warm", tmp_path, script)
        assert done.code == 64
        assert words in done.said
        assert "Traceback" not in done.said


def test_what_python_is_told_reaches_the_script(tmp_path: Path) -> None:
    """PYTHON* variables affect workers as they affect python."""
    (tmp_path / "told.py").write_text(
        "import faulthandler, sys, warnings\n"
        "print(sys.flags, sys.warnoptions, sys.stdout.encoding, faulthandler.is_enabled())\n"
        "print(hash('a'), sys.dont_write_bytecode, sys.pycache_prefix)\n"
        "warnings.warn('told', DeprecationWarning)\n"
    )
    told = {
        "PYTHONHASHSEED": 7,
        "PYTHONWARNINGS": "error::ImportWarning,always",
        "PYTHONFAULTHANDLER": 1,
        "PYTHONIOENCODING": "latin-1:replace",
        "PYTHONPYCACHEPREFIX": tmp_path / "cache",
    }
    expected = plain(tmp_path, "told.py", **told)
    for way in OURS:
        done = launch(way, tmp_path, "told.py", **told)
        assert done.out == (expected.stdout,)
        assert done.err == (expected.stderr,)
