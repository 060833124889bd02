"""Writes what it is given to a file of its rank, and a line to each of its streams."""

import json
import os
import sys
from pathlib import Path

rank = os.environ["RANK"]
seen = {
    "argv": sys.argv[1:],
    "environment": dict(os.environ),
    "cores": sorted(os.sched_getaffinity(0)),
    "executable": sys.executable,
    "parent": os.getppid(),
}
Path(f"seen-{rank}.json").write_text(json.dumps(seen))
print(f"out {rank}", flush=True)
print(f"err {rank}", file=sys.stderr, flush=True)
