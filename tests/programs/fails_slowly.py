"""Rank CAUSE fails, 0 if not set, and telling so takes as long as `HOW` says; others fail of that.

While the record is made, which asks the exception for its message, HOW is what befalls the rank.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

world, how = int(os.environ["WORLD_SIZE"]), sys.argv[1]
rank = (int(os.environ["RANK"]) - int(os.environ.get("CAUSE", "0"))) % world


def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.001)


class CauseError(Exception):
    def __str__(self):
        Path("failing").touch()
        if how == "signalled":
            os.kill(os.getpid(), signal.SIGTERM)  # whichever thread takes it
        elif how == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
        elif how == "overtaken":
            wait_for("stopped")
        elif how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "hanging":
            threading.Event().wait()
        return "the cause"


def heeds(_number, _frame):
    Path("heeded").touch()
    sys.exit(0)


def stop(_number, _frame):
    Path("stopped").touch()
    sys.exit(0)


def consequence(_number, _frame):
    raise ConnectionResetError("a consequence")


def fail():
    raise CauseError


Path(f"ready-{rank}").touch()
for one in range(world):
    wait_for(f"ready-{one}")
if rank == 0:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    if "handler" in sys.argv:
        signal.signal(signal.SIGTERM, heeds)
    if "thread" in sys.argv:
        from concurrent.futures import ThreadPoolExecutor

        ThreadPoolExecutor().submit(fail).result()
    fail()
if rank == 1 and how in ("killed", "hanging"):
    signal.signal(signal.SIGTERM, consequence)
elif rank == 1:
    wait_for("failing")
    raise ConnectionResetError("a consequence")
else:
    signal.signal(signal.SIGTERM, stop)
time.sleep(600)
