"""Says that it runs, and stays until it is told to finish; in the first attempts rank 1 fails."""

import os
import pathlib
import subprocess
import sys
import time

folder, failures = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
world = int(os.environ["WORLD_SIZE"])


def ready(one):
    return folder / f"ready-{attempt}-{one}"


child = subprocess.Popen(["sleep", "600"], start_new_session=True)
ready(rank).with_suffix(".part").write_text(str(os.getpid()))
ready(rank).with_suffix(".part").rename(ready(rank))
while not all(ready(one).exists() for one in range(world)):
    time.sleep(0.02)
if attempt < failures and rank == 1:
    raise RuntimeError("the weather is bad today")
while not (folder / "finish").exists():
    time.sleep(0.02)
child.kill()
