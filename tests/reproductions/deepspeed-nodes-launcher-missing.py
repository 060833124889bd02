"""Several nodes are to be started by pdsh, and it isn't installed."""

import os
import sys
from pathlib import Path

from deepspeed.launcher.runner import main

RANKS = 1

os.environ["PATH"] = str(Path(sys.executable).parent)  # nothing else, so no pdsh either
Path("train.py").write_text("print('trained')\n")
Path("hostfile").write_text("node-0 slots=1\nnode-1 slots=1\n")
command = ["--hostfile=hostfile", "--master_addr=127.0.0.1", "--no_ssh_check"]
if "--advised" in sys.argv:
    Path("hostfile").write_text("node-0 slots=1\n")
    command += ["--no_ssh", "--node_rank=0"]
main([*command, "train.py"])
