"""Leaves a file when a moment of the training has come, and stays in that moment for a while.

MARKS/MOMENT-RANK-ATTEMPT holds the process id and the host's name. Without MARKS nothing is left.
"""

import os
import time

LINGER = 0.2
"""Seconds in which somebody may strike."""
FOLDER = os.environ.get("MARKS", "")
RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def come(moment, seconds=LINGER):
    """The moment has come."""
    if FOLDER:
        path = f"{FOLDER}/{moment}-{RANK}-{ATTEMPT}"
        with open(f"{path}.new", "w") as file:
            file.write(f"{os.getpid()} {os.uname().nodename}")
        os.replace(f"{path}.new", path)
        time.sleep(seconds)


def fail_once(step):
    """The last rank fails in the first attempt's fourth step, where FAIL_ONCE is set."""
    if FOLDER and "FAIL_ONCE" in os.environ and (ATTEMPT, step, RANK) == ("0", 3, WORLD - 1):
        come("relaunch", 0)
        raise ValueError("the first attempt fails")
