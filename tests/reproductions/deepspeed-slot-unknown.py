"""The command line names a device that this host doesn't have."""

import sys
from pathlib import Path

from deepspeed.launcher.runner import main

RANKS = 1

Path("train.py").write_text("print('trained')\n")
device = 0 if "--advised" in sys.argv else 100000
main([f"--include=localhost:{device}", "train.py"])
