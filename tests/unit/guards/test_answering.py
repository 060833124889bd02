"""The inquiry handler in a worker's process, and when it isn't installed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safe_launch.evidence import inquiry
from safe_launch.guards import answering
from safe_launch.system import cgroups

BEGINS = """
import json, os, signal, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
{before}
from safe_launch.guards import answering
from safe_launch.system import cgroups
answering.begin(0)
threads = os.listdir("/proc/self/task")
other = max(threads, key=int)
def mask(thread):
    (found,) = [line for line in open(f"/proc/self/task/{{thread}}/status") if "SigBlk" in line]
    return found.split()[1]
while len(threads) > 1 and int(mask(other), 16) >> ({taken} - 1) & 1:
    pass  # it is just beginning, and takes nothing
masks = {{thread == str(os.getpid()): mask(thread) for thread in threads}}
links = []
for number in os.listdir("/proc/self/fd"):
    try:
        links.append(os.readlink(f"/proc/self/fd/{{number}}"))
    except OSError:
        pass
print(json.dumps([len(threads), threading.active_count(), masks, links]))
"""


def begun(before: str = "", **variables: str) -> tuple[int, int, dict[str, str], list[str]]:
    """Threads, Python's threads, signal masks of all threads, open files."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            BEGINS.format(before=before, taken=inquiry.OF_ALL),
            json.dumps(sys.path),
        ],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    threads, known, masks, links = json.loads(done.stdout)
    return threads, known, masks, links


def stacks(links: list[str]) -> list[int]:
    """The threads named in the memory for stacks."""
    return [found for found in map(inquiry.thread_of, links) if found is not None]


def test_a_thread_that_takes_one_signal() -> None:
    """Python doesn't see the thread, and the script's signals are delivered as without it."""
    threads, known, masks, links = begun(**{inquiry.VARIABLE: "/nowhere"})
    assert (threads, known) == (2, 1)
    assert int(masks["true"], 16) == 0
    taken = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, inquiry.OF_ALL}
    assert int(masks["false"], 16) == sum(1 << (number - 1) for number in taken)
    assert len(stacks(links)) == 1


def test_not_asked_for() -> None:
    """Without the variable no thread is started."""
    threads, _, _, links = begun(**{inquiry.VARIABLE: ""})
    assert (threads, stacks(links)) == (1, [])


@pytest.mark.parametrize("number", [inquiry.OF_ALL, inquiry.OF_MAIN])
def test_a_signal_that_is_taken(number: int) -> None:
    """An existing handler, such as a `sitecustomize`'s, is kept."""
    threads, _, _, links = begun(
        f"signal.signal({number}, print)", **{inquiry.VARIABLE: "/nowhere"}
    )
    assert (threads, stacks(links)) == (1, [])


def test_room_for_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The debug servers of all ranks take at most an eighth of the limit."""
    limit = [4096]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (limit[0], limit[0]))
    monkeypatch.setattr(cgroups, "folders", lambda _controller: [tmp_path])
    (tmp_path / "pids.max").write_text("max\n")
    assert answering._has_room()
    limit[0] = 4095
    assert not answering._has_room()
    limit[0] = resource.RLIM_INFINITY
    assert answering._has_room()
    (tmp_path / "pids.max").write_text("4095\n")
    assert not answering._has_room()


@pytest.mark.parametrize(
    ("version", "name"),
    [((2, 7), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), ((2, 8), "TORCH_FR_DUMP_TEMP_FILE")],
)
def test_dumps_of_a_timeout_come_into_the_run_directory(
    version: tuple[int, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This torch version's variable is set unless the user has set it."""
    environment = {inquiry.DUMPS_VARIABLE: "/run/attempt-1/collectives-"}
    monkeypatch.setattr(os, "environ", environment)
    answering._keep_dumps(version)
    hccl = "TORCH_HCCL_DEBUG_INFO_TEMP_FILE"
    assert environment == dict.fromkeys(
        (inquiry.DUMPS_VARIABLE, name, hccl), "/run/attempt-1/collectives-"
    )
    own = {inquiry.DUMPS_VARIABLE: "/x-", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/y-", hccl: "/z-"}
    monkeypatch.setattr(os, "environ", dict(own))
    answering._keep_dumps(version)
    assert os.environ == own
