"""DeepSpeed's launcher is told to bind ranks to cores, and numactl isn't installed."""

import base64
import json
import os
import shutil
import sys
from pathlib import Path

from deepspeed.launcher import launch

RANKS = 1

programs = Path("programs").absolute()
programs.mkdir()
for name in ("sh", "uname", "lscpu"):
    if found := shutil.which(name):
        (programs / name).symlink_to(found)
os.environ["PATH"] = str(programs)
Path("train.py").write_text("import torch\ntorch.ones(2, requires_grad=True).sum().backward()\n")
hosts = base64.urlsafe_b64encode(json.dumps({"localhost": [0]}).encode()).decode()
binding = [] if "--advised" in sys.argv else ["--bind_cores_to_rank"]
sys.argv = ["launch", f"--world_info={hosts}", *binding, "train.py"]
launch.main()
