"""Makes steps and saves each, goes on from the last one, and ends when there is a file `finish`."""

import os
import sys
import time

folder, rank = sys.argv[1], os.environ["RANK"]
saved = f"{folder}/step-{rank}"
step = 0
if os.path.exists(saved):
    with open(saved) as file:
        step = int(file.read())
print(f"rank {rank} goes on from step {step}", flush=True)
while not os.path.exists(f"{folder}/finish"):
    step += 1
    with open(f"{saved}.new", "w") as file:
        file.write(str(step))
    os.replace(f"{saved}.new", saved)
    time.sleep(0.05)
