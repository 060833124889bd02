"""Leaves three orphans, which end when they are told; then waits for its own end."""

import os
import sys
import time

folder = sys.argv[1]


def wait_for(name):
    while not os.path.exists(f"{folder}/{name}"):
        time.sleep(0.02)


for number in range(3):
    child = os.fork()
    if not child:
        if os.fork():
            os._exit(0)
        os.setsid()
        with open("/proc/self/comm", "w") as file:
            file.write("orphan")
        open(f"{folder}/orphan-{number}", "w").close()
        wait_for("end-orphans")
        os._exit(0)
    os.waitpid(child, 0)
    wait_for(f"orphan-{number}")
open(f"{folder}/ready-0", "w").close()
wait_for("finish")
