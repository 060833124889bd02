"""Rank by rank, fails the way that its arguments say; the others wait for ever.

`RANK:HOW` fails at once, `RANK:SECONDS@HOW` so many seconds after the first such rank.
"""

import os
import signal
import sys
import time

rank = int(os.environ["RANK"])
ready = os.environ.get("READY")
plan = dict(one.split(":", 1) for one in sys.argv[1:])
how = plan.get(str(rank), "wait")
if ready:
    open(f"{ready}-{rank}", "w").close()
    while not all(os.path.exists(f"{ready}-{one}") for one in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.001)
delay, _, how = how.rpartition("@")
if delay:
    while not os.path.exists(f"{ready}-failing"):
        time.sleep(0.001)
    time.sleep(float(delay))
elif ready and how != "wait":
    open(f"{ready}-failing", "w").close()
if how == "raise":
    raise ValueError(f"the bug of rank {rank}")
if how.startswith("exit"):
    sys.exit(int(how[4:]))
if how.startswith("leave"):
    os._exit(int(how[5:]))
if how.startswith("kill"):
    os.kill(os.getpid(), getattr(signal, how[4:]))
if how == "wait":
    time.sleep(600)
