"""Rank by rank, fails the way that its arguments say; the others wait for ever.

`RANK:HOW` fails at once, `RANK:SECONDS@HOW` so many seconds after the first such rank has failed:
after its exception was caught, whose text is asked for then, or its process was waited for.
"""

import glob
import os
import signal
import sys
import time

rank = int(os.environ["RANK"])
ready = os.environ.get("READY")
plan = dict(one.split(":", 1) for one in sys.argv[1:])
how = plan.get(str(rank), "wait")


def failing():
    if ready:
        open(f"{ready}-caught", "w").close()


def has_failed():
    pids = [path.rpartition("-")[2] for path in glob.glob(f"{ready}-first-*")]
    return os.path.exists(f"{ready}-caught") or any(
        not os.path.exists(f"/proc/{pid}") for pid in pids
    )


class Words:
    def __str__(self):
        failing()
        return f"the bug of rank {rank}"


class Code(int):
    def __str__(self):
        failing()
        return int.__repr__(self)


if ready:
    open(f"{ready}-{rank}", "w").close()
    while not all(os.path.exists(f"{ready}-{one}") for one in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.001)
delay, _, how = how.rpartition("@")
if delay:
    while not has_failed():
        time.sleep(0.001)
    time.sleep(float(delay))
elif ready and how != "wait":
    open(f"{ready}-first-{os.getpid()}", "w").close()
if how == "raise":
    raise ValueError(Words())
if how.startswith("exit"):
    sys.exit(Code(how[4:]))
if how.startswith("leave"):
    os._exit(int(how[5:]))
if how.startswith("kill"):
    os.kill(os.getpid(), getattr(signal, how[4:]))
if how == "wait":
    time.sleep(600)
