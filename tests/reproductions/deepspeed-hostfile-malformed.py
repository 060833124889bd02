"""A line of the hostfile doesn't say how many devices the host has."""

import sys
from pathlib import Path

from deepspeed.launcher.runner import fetch_hostfile

RANKS = 1

line = "node-0 slots=8" if "--advised" in sys.argv else "node-0 8"
Path("hostfile").write_text(line + "\n")
hosts = fetch_hostfile("hostfile")
print(f"{sum(hosts.values())} ranks")
