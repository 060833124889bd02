"""Ranks of which one stands somewhere: `sleep`, `gil`, `fork`, `stop`, or all `alone`, no torch."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

RANK = int(os.environ["RANK"])


def locked(lock):
    lock.acquire()  # its child can't


def stand(how):
    ready()
    if how == "gil":
        ctypes.PyDLL(None).sleep(600)  # a call that keeps the GIL
    elif how == "fork":
        lock = threading.Lock()
        lock.acquire()
        child = os.fork() or locked(lock)
        os.waitpid(child, 0)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        time.sleep(600)


def ready():
    Path(f"writing-{RANK}").write_text(f"{os.getpid()} {threading.get_ident()}")
    Path(f"writing-{RANK}").rename(f"ready-{RANK}")


def main(how):
    if how == "alone":
        stand(how)
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(3))
    if RANK == 1:
        stand(how)
    ready()
    dist.all_reduce(torch.ones(2, 4))


main(sys.argv[1])
