"""Notes on imports preloaded for workers, and effects that forbid forking."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from safe_launch.workers.forkserver import preload
from safe_launch.workers.forkserver.extra_imports import Fork, Mark, Report, follow
from safe_launch.workers.forkserver.preload import Preloaded, UnsharedImport
from safe_launch.workers.forkserver.restart_in_place import watch
from safe_launch.workload.script.imports import FIRST, Filter, Import, Variable

NOTHING = Report({}, {}, "")
"""The report of a worker without further imports."""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of importable modules, unloaded afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_what_imports_look_up_is_noted_with_the_latest_line(modules: Path) -> None:
    """By any means of access; iterating over all variables doesn't count."""
    (modules / "asks_a.py").write_text(
        "import os\nfrom os import environ\nos.environ.get('ASKED')\n'ALSO' in environ\n"
        "dict(os.environ.items()), os.environ.copy()\n"
    )
    (modules / "asks_b.py").write_text("import os\nos.getenv('ASKED')\n")
    preloaded = Preloaded()
    preloaded.run([Import("asks_a", (), 3), Import("asks_b", (), 7)])
    assert preloaded.reads == {"ASKED": 7, "ALSO": 3}
    assert type(os.environ) is os._Environ


def test_an_import_that_reads_a_rank_is_broken_off(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the module catches exceptions; the environment is unchanged."""
    # accelerate sets it, too, if an earlier test of this process imported it.
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    package = modules / "ranked"
    package.mkdir()
    (package / "__init__.py").write_text("from . import inner\n")
    (package / "inner.py").write_text(
        "import os\ntry:\n    os.environ.get('RANK')\nexcept Exception:\n    pass\n"
    )
    with pytest.raises(UnsharedImport) as caught:
        Preloaded(per_rank=("RANK",)).run([Import("ranked", (), 1)])
    assert caught.value.package == "ranked"
    assert caught.value.reason == "reads RANK, which differs between ranks"
    assert type(os.environ) is os._Environ
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ


def test_an_import_that_leaves_half_a_package_is_broken_off(modules: Path) -> None:
    """A worker's retry would fail differently, as torch's does."""
    (modules / "needs_half.py").write_text("import half_a\n")
    (modules / "half_a").mkdir()
    (modules / "half_a" / "inner.py").write_text("")
    (modules / "half_a" / "__init__.py").write_text("from . import inner\n1 / 0\n")
    for name in ("half_a", "needs_half"):
        with pytest.raises(UnsharedImport) as caught:
            Preloaded().run([Import(name, (), 1)])
        assert (caught.value.package, caught.value.reason) == ("half_a", "can't be imported")
        del sys.modules["half_a.inner"]


def test_steps_are_done_in_their_order(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable is set before the import that reads it; errors are left to the script."""
    monkeypatch.setenv("GIVEN", "by the user")
    monkeypatch.delenv("NEW", raising=False)
    (modules / "reads.py").write_text("import os\nSEEN = os.environ.get('NEW')\n")
    (modules / "breaks.py").write_text("import sys\nsys.exit(3)\n")
    with warnings.catch_warnings():
        Preloaded().run(
            [
                Variable("NEW", "1", is_default=True),
                Variable("GIVEN", "2", is_default=True),
                Filter("filterwarnings", ("no such action",)),
                Import("breaks", (), 1),
                Import("nowhere_to_be_found", ("name",), 1),
                Import("reads", (), 2),
            ]
        )
    assert sys.modules["reads"].SEEN == "1"
    assert os.environ["GIVEN"] == "by the user"
    monkeypatch.delenv("NEW")


def threads() -> int:
    """Reports this many started threads."""
    found = re.search(r"has started (\d+) thread", "\n".join(preload.problems()))
    return 0 if found is None else int(found[1])


def test_a_thread_forbids_to_fork() -> None:
    """A fork has only the calling thread."""
    before = threads()
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    meanwhile = threads()
    done.set()
    thread.join()
    assert meanwhile == before + 1


def test_an_open_device_forbids_to_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator's context doesn't survive a fork."""
    device = tmp_path / "device0"
    device.touch()
    monkeypatch.setattr(preload, "DEVICES", (str(tmp_path),))
    expected = f"an import has opened {device}"
    assert expected not in preload.problems()
    with device.open():
        assert expected in preload.problems()


@pytest.mark.parametrize("name", ["cuda", "npu", "xpu"])
def test_an_initialized_device_forbids_to_fork(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor doesn't matter."""
    for is_initialized in (False, True):
        device = SimpleNamespace(is_initialized=lambda answer=is_initialized: answer)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**{name: device}))
        expected = f"an import has initialized torch.{name}"
        assert (expected in preload.problems()) == is_initialized


def test_a_report_comes_back_from_json() -> None:
    """Decoding keeps its marks."""
    report = Report({"m": {"": Mark(1), "f": Mark(2, is_own=True)}}, {"A": 3}, "", None, ["m"])
    assert Report.of(json.loads(json.dumps(asdict(report)))) == report


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (NOTHING, None),
        (Report({}, {}, "", "torch.save"), "the script has replaced torch.save"),
        (Report({f"{FIRST}.models": {}}, {}, ""), f"{FIRST} changes later imports"),
        (Report({"nowhere_to_be_found": {}}, {}, ""), "nowhere_to_be_found is imported only by"),
        (Report({}, {}, "float64 None"), "the script has changed torch's defaults"),
    ],
)
def test_a_server_follows_no_worker_whose_script_has_changed_what_imports_see(
    report: Report, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one whose imports fail here."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = follow(report, Preloaded(), None)
    assert (found is None) if reason is None else reason in str(found)


def test_a_package_that_is_left_to_the_workers_isnt_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This includes all its modules."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    report = Report({"nowhere_to_be_found.inner": {}}, {}, "")
    assert follow(report, Preloaded(), "nowhere_to_be_found") is None
    assert follow(report, Preloaded(), "another") is not None


def test_a_worker_reports_the_variables_that_were_changed() -> None:
    """If an import read one of them late, forking ends."""
    report = Fork({"A": "old", "B": "same", "GONE": "x"}).report({"A": "new", "B": "same"})
    assert report.variables.keys() == {"A", "GONE"}
    late = Preloaded(late_reads={"A"})
    assert follow(report, late, None) == "a later import reads A, which differs in the worker"


def test_the_first_seed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is then restored."""
    original = random.seed
    monkeypatch.setattr(random, "seed", original)
    fork = Fork({})
    fork.watch()
    assert fork.unseeded == set()
    random.seed(1)
    assert "random" in fork.unseeded
    assert random.seed is original


@pytest.mark.parametrize(
    ("script", "restarts"),
    [
        ("import os\nos.environ['A'] = '1'\n", 1),
        ("import os\ndel os.environ['HERE']\n", 1),
        ("import os\nos.environ['HERE'] = 'x'\n", 0),
        ("import os\nos.environ['B'] = '1'\n", 0),
        ("import os\n\n\n\n\nos.environ['A'] = '1'\n", 0),
    ],
)
def test_a_worker_is_re_executed_where_a_preloaded_import_has_read_what_it_sets(
    script: str, restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script sets another value above the import."""
    monkeypatch.setenv("HERE", "x")
    executed: list[dict[str, str]] = []
    monkeypatch.setattr(os, "execve", lambda *command: executed.append(command[2]))
    reported: list[str] = []
    before = dict(os.environ)
    watch(Preloaded(reads={"A": 5, "HERE": 5}), reported.append)
    try:
        exec(compile(script, "script.py", "exec"), {"__name__": "__main__"})
    finally:
        os.environ.__class__ = os._Environ
        del os.environ.reads, os.environ.restart  # type: ignore[attr-defined]
        for name in ("A", "B"):
            os.environ.pop(name, None)
    assert len(reported) == len(executed) == restarts
    assert all(environment == before for environment in executed)


def test_what_was_printed_is_printed_again() -> None:
    """Each process that wants it prints to its current streams."""
    code = (
        "import os, sys\n"
        "from safe_launch.workers.forkserver.fork_workers import CapturedOutput\n"
        "streams = os.dup(1), os.dup(2)\n"
        "output = CapturedOutput.start()\n"
        "os.write(1, b'out'); os.write(2, b'err')\n"
        "separate = output.separate()\n"
        "os.write(1, b' more')\n"
        "os.dup2(streams[0], 1); os.dup2(streams[1], 2)\n"
        "separate.print()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("out more", "err")
