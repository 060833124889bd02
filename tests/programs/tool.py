"""A tool with a launcher of its own: `tool.py HOW PROCESSES SCRIPT ARGUMENTS...` starts workers.

Then it leaves `tool-went-on` where it runs, if the launch has ended well.
"""

import json
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
if how.startswith("call"):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import get_args_parser, run

    try:
        run(get_args_parser().parse_args([one, *script]))
    except ChildFailedError as error:
        if how != "call-and-catch":
            raise
        kept = ("local_rank", "pid", "exitcode", "error_file", "message")
        found = {
            rank: [getattr(each, name) for name in kept] for rank, each in error.failures.items()
        }
        with open("caught", "w") as file:
            json.dump({"first": error.get_first_failure()[0], "failures": found}, file)
    finally:
        open("tool-cleaned-up", "w").close()
else:
    subprocess.run([*commands[how], *script], check=True)
open("tool-went-on", "w").close()
