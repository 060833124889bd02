"""Leaves `ran-RANK` with what its launcher told it, then does what its first argument says."""

import argparse
import os
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("how", nargs="?", default="")
parser.add_argument("value", nargs="?", default="")
options = parser.parse_args()
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
names += ("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "SENTINEL")
rank = os.environ["RANK"]
told = " ".join(os.environ.get(name, "-") for name in names)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def tell(*words):
    with open(f".ran-{rank}", "w") as file:
        print(told, *words, file=file, end="")
    os.rename(f".ran-{rank}", f"ran-{rank}")


def train():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", **({"init_method": options.value} if options.value else {}))
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    tell(f"sum {total.item():g}")
    dist.destroy_process_group()


if options.how == "elastic":
    import torch.distributed

    tell(torch.distributed.is_torchelastic_launched())
elif options.how == "sum":
    if options.value:
        options.value += f"?rank={rank}&world_size={os.environ['WORLD_SIZE']}"
    train()
elif options.how == "record":
    from torch.distributed.elastic.multiprocessing.errors import record

    @record
    def main():
        tell()
        raise ValueError("the bug of the script")

    main()
elif options.how == "once" and attempt == 0:
    tell("fails")
    sys.exit(3)
elif options.how == "prints":
    tell()
    print(f"out {rank}\nnoise {rank}")
    print(f"err {rank}", file=sys.stderr)
elif options.how == "waits":
    heard = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, _: heard.append(signal.Signals(number).name))
    tell("ready")
    while not heard:
        time.sleep(0.02)
    tell("heard", heard[0])
    if heard[0] == "SIGUSR1":
        time.sleep(2)
else:
    tell(f"restarts {attempt} of {os.environ['TORCHELASTIC_MAX_RESTARTS']}")
if options.how == "raises":
    raise ValueError("the bug of the script")
if options.how == "exits":
    sys.exit(int(options.value))
if options.how == "dies":
    os.kill(os.getpid(), getattr(signal, options.value))
