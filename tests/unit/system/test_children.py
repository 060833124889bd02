"""A child's exit status, and adoption of orphans."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from safe_launch.system import children


@pytest.mark.parametrize(
    ("end", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", -signal.SIGSEGV)]
)
def test_the_end_of_a_child_can_be_asked_for_twice(end: str, code: int) -> None:
    """The child isn't reaped by the query."""
    child = subprocess.Popen(["sh", "-c", end])
    assert children.exit_code(child.pid) == children.exit_code(child.pid) == code
    assert child.wait() == code


def test_others_children_have_no_end_here() -> None:
    """Process 1 isn't a child of this process."""
    with pytest.raises(ChildProcessError):
        children.exit_code(1)


def test_descendants_become_children_only_meanwhile() -> None:
    """Tested in a separate process, whose orphans would go elsewhere."""
    code = (
        "import os, subprocess\n"
        "from safe_launch.system import children\n"
        "def orphan():\n"
        "    command = ['sh', '-c', 'sleep 600 >&2 & echo $!']\n"
        "    pid = int(subprocess.check_output(command))\n"
        "    state = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()\n"
        "    is_ours = int(state[1]) == os.getpid()\n"
        "    os.kill(pid, 9)\n"
        "    return is_ours, pid\n"
        "with children.subreaper():\n"
        "    inside, pid = orphan()\n"
        "outside, _ = orphan()\n"
        "print(inside, outside, children.exit_code(pid))\n"
        "children.reap()\n"
        "children.reap()\n"
        "print(os.path.exists(f'/proc/{pid}'))\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert shown.split() == ["True", "False", "-9", "False"]


def test_nobody_is_there_to_be_reaped() -> None:
    """It is no error, also if a child is running."""
    code = (
        "import subprocess\n"
        "from safe_launch.system import children\n"
        "children.reap()\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "children.reap()\n"
        "print(child.poll())\n"
        "child.kill()\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert shown == "None\n"
