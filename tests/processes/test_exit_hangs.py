"""Finished ranks that don't exit are ended in native code, and left alone otherwise."""

from __future__ import annotations

from pathlib import Path

from support.processes import gone, launch

FOREVER = """
import ctypes

def forever():
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex), lock(mutex)
"""
"""Native code that keeps the GIL and ignores signals, like a library's deadlock: pause()
returns when the launcher asks for a stack."""

TRAIN = (
    FOREVER
    + """
import os, threading, time, atexit
print("trained", flush=True)
if os.environ["RANK"] == "1":
    {end}
"""
)


def test_a_rank_that_hangs_in_native_code_as_it_exits(workshop: Path) -> None:
    """Rank 0 has ended and the training is done: a success with a note, in bounded time."""
    script = workshop / "train.py"
    script.write_text(TRAIN.format(end="atexit.register(forever)"))
    done = launch(workshop, "--nproc=2", "--hang-report=1", script)
    said = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert done.returncode == 0
    assert said.count("rank 1 has finished training, but hangs in native code") == 1
    assert "succeeded; rank 1 had finished training and hung in native code" in said
    assert gone(workshop)


def test_a_rank_that_hangs_as_the_interpreter_is_taken_down(workshop: Path) -> None:
    """Its exit handlers have run, so it is ended after the patience."""
    script = workshop / "train.py"
    held = "Held = type('Held', (), {'__del__': lambda self, hang=forever: hang()}); held = Held()"
    script.write_text(TRAIN.format(end=held))
    done = launch(workshop, "--nproc=2", "--hang-report=2", script)
    said = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert done.returncode == 0
    assert "is ended in" not in said
    assert "succeeded; rank 1 had finished training and hung in native code" in said
    assert gone(workshop)


def test_a_thread_that_the_script_leaves_running_goes_on(workshop: Path) -> None:
    """The interpreter waits for it, as for a server's thread, even if idle."""
    script = workshop / "train.py"
    thread = "threading.Thread(target=lambda: (time.sleep(8), print('served'))).start()"
    script.write_text(TRAIN.format(end=thread))
    done = launch(workshop, "--nproc=2", "--hang-report=1", script)
    assert done.returncode == 0
    assert "served" in done.stdout
    assert "hangs" not in done.stderr


LOOP = (
    FOREVER
    + """
import os, torch

class Group:
    def __del__(self):
        if os.environ["RANK"] == "1":
            forever()

def main():
    group = Group()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

main()
"""
)


def test_a_rank_that_hangs_as_its_objects_are_destroyed(workshop: Path) -> None:
    """After training, before the script's end, as in a process group's destructor."""
    script = workshop / "train.py"
    script.write_text(LOOP)
    done = launch(workshop, "--nproc=2", "--hang-report=1", script)
    said = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert done.returncode == 0
    assert "rank 1 hangs at the end of the script, which the others have left" in said
    assert "succeeded; rank 1 had finished training and hung in native code" in said
    assert gone(workshop)
