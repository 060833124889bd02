"""The hostfile names a host that this one has no access to by ssh."""

import os
import sys
from pathlib import Path

from deepspeed.launcher.runner import main

RANKS = 1

# Whatever ssh this machine has, it lets nobody in.
Path("ssh").write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
Path("ssh").chmod(0o755)
os.environ["PATH"] = f"{Path.cwd()}:{os.environ['PATH']}"

Path("train.py").write_text("print('trained')\n")
Path("hostfile").write_text("node-0 slots=1\n")
hosts = [] if "--advised" in sys.argv else ["--hostfile=hostfile"]
main([*hosts, "--num_gpus=1", "train.py"])
