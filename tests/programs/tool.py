"""A tool with a launcher of its own: `tool.py HOW PROCESSES SCRIPT ARGUMENTS...` starts workers.

Then it leaves `tool-went-on` where it runs, if the launch has ended well.
"""

import subprocess
import sys

how, processes, *script = sys.argv[1:]
one, two = f"--nproc_per_node={processes}", f"--num_processes={processes}"
commands = {
    "torchrun": ["torchrun", one],
    "module": [sys.executable, "-m", "torch.distributed.run", one],
    "module-unbuffered": [sys.executable, "-um", "torch.distributed.run", one],
    "launch": [sys.executable, "-m", "torch.distributed.launch", one],
    "deepspeed": ["deepspeed", "--num_gpus", processes],
    "accelerate": ["accelerate", "launch", "--multi_gpu", two],
    "accelerate-deepspeed": ["accelerate", "launch", "--use_deepspeed", two],
    "safe-launch": ["safe-launch", "--nproc", processes],
    "isolated": [sys.executable, "-I", "-m", "torch.distributed.run", one],
}
if how == "call":
    from torch.distributed.run import get_args_parser, run

    run(get_args_parser().parse_args([one, *script]))
else:
    subprocess.run([*commands[how], *script], check=True)
open("tool-went-on", "w").close()
