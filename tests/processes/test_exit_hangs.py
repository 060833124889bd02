"""Ranks that have finished and don't exit: in native code they are ended, else they are let be."""

from __future__ import annotations

from pathlib import Path

from support.processes import gone, launch

TRAIN = """
import ctypes, os, threading, time, atexit
print("trained", flush=True)
if os.environ["RANK"] == "1":
    {end}
"""


def test_a_rank_that_hangs_in_native_code_as_it_exits(workshop: Path) -> None:
    """Rank 0 has ended and the training is done: a success with a remark, in a bounded time."""
    script = workshop / "train.py"
    script.write_text(TRAIN.format(end="atexit.register(ctypes.PyDLL(None).pause)"))
    done = launch(workshop, "--nproc=2", "--hang-report=1", script)
    said = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert done.returncode == 0
    assert said.count("rank 1 has finished its script, but hangs in native code") == 1
    assert "succeeded; rank 1 had finished its script and hung in native code" in said
    assert gone(workshop)


def test_a_thread_that_the_script_leaves_running_goes_on(workshop: Path) -> None:
    """The interpreter waits for it, as for a server's, however little it does."""
    script = workshop / "train.py"
    thread = "threading.Thread(target=lambda: (time.sleep(8), print('served'))).start()"
    script.write_text(TRAIN.format(end=thread))
    done = launch(workshop, "--nproc=2", "--hang-report=1", script)
    assert done.returncode == 0
    assert "served" in done.stdout
    assert "hangs" not in done.stderr
