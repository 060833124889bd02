"""The command line keeps a device free that this host doesn't have."""

import sys
from pathlib import Path

from deepspeed.launcher.runner import main

RANKS = 1

Path("train.py").write_text("print('trained')\n")
kept_free = [] if "--advised" in sys.argv else ["--exclude=localhost:100000"]
main([*kept_free, "train.py"])
