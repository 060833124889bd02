"""Notes the signals that it gets, and goes on; leaves a grandchild in a session of its own."""

import os
import signal
import subprocess
import sys
import time

folder, rank = sys.argv[1], os.environ["RANK"]
heeds = sys.argv[2:]


def note(number, _frame):
    name = signal.Signals(number).name
    with open(f"{folder}/signals-{rank}", "a") as file:
        file.write(f"{name}\n")
    if name in heeds:
        with open(f"{folder}/goodbye-{rank}", "w") as file:
            file.write("had time to clean up")
        sys.exit(0)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    if number != signal.SIGUSR1 or rank == "0":
        signal.signal(number, note)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
with open(f"{folder}/grandchild-{rank}", "w") as file:
    file.write(str(child.pid))
with open(f"{folder}/.ready-{rank}", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{folder}/.ready-{rank}", f"{folder}/ready-{rank}")
while True:
    if os.path.exists(f"{folder}/finish"):
        sys.exit(0)
    time.sleep(0.02)
