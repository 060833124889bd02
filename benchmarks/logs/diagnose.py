"""The speed of `safe-launch diagnose`: megabytes a second against grep's, and its start.

    python benchmarks/logs/diagnose.py [--megabytes N]

Logs are generated: output of a healthy training of eight ranks, the same with a failure at its
beginning or its end, and texts that slow down backtracking regular expressions. The peer is
`grep -cE` with the one expression that people search such a log with.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

EXPRESSION = "Error|Traceback|Killed|exitcode|Exception"
TRACEBACK = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/ml/finetune.py", line 31, in main
[rank3]:     loss.backward()
[rank3]: RuntimeError: Expected to mark a variable ready only once. This error is caused by \
one of the following reasons: 1) Use of a module parameter outside the `forward` function.
"""


def healthy(megabytes: int) -> Iterator[str]:
    """Lines of a training: losses, progress bars, a logger, NCCL, some warnings."""
    chance = random.Random(0)
    size = 0
    step = 0
    while size < megabytes * 1e6:
        step += 1
        kind = chance.random()
        if kind < 0.3:
            line = f"{{'loss': {chance.random():.4f}, 'grad_norm': 0.3, 'epoch': {step / 1e6:.4f}}}"
        elif kind < 0.5:
            line = f"\r {step % 100}%|####      | {step}/9000000 [1:32:01<12:03,  2.1s/it]"
        elif kind < 0.7:
            line = (
                "[2025-06-14 08:40:52,940] [INFO] [logging.py:96:log_dist] [Rank 0] "
                f"step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]"
            )
        elif kind < 0.75:
            line = "node3:4211:4399 [5] NCCL INFO Channel 02/0 : 13[5] -> 12[4] via P2P/IPC"
        elif kind < 0.76:
            line = "x.py:31: UserWarning: None of the inputs have requires_grad=True."
        else:
            line = f"2025-06-14 08:41:00 - INFO - __main__ - rank {step % 8} tokens/s {step}"
        size += len(line) + 1
        yield line


def logs(megabytes: int) -> dict[str, Iterator[str]]:
    """Pieces of the logs by name; never whole, so that this process stays small."""
    whole = megabytes * 10**6

    def repeated(text: str) -> Iterator[str]:
        piece = text * (10**5 // len(text))
        return (piece for _ in range(whole // len(piece)))

    def calm() -> Iterator[str]:
        return (f"{line}\n" for line in healthy(megabytes))

    return {
        "healthy": calm(),
        "failed at its end": chain(calm(), [TRACEBACK]),
        "an exception at its beginning": chain([TRACEBACK], calm()),
        "one line without end": repeated("a"),
        "one line of spaces": repeated(" "),
        "names with dots": repeated("Error."),
        "tracebacks, one after the other": repeated(TRACEBACK),
        "frames without end": repeated('  File "a.py", line 3, in f\n'),
    }


def seconds(command: list[str]) -> tuple[float, float]:
    """A command's duration in seconds and its peak memory in MiB."""
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, _, used = os.wait4(process.pid, 0)
    return time.monotonic() - start, used.ru_maxrss / 1024


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    launcher = str(Path(sys.executable).with_name("safe-launch"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.log"
        path.write_text(TRACEBACK)
        alone = min(seconds([launcher, "diagnose", str(path)])[0] for _ in range(5))
        print(f"start to end on an ordinary log: {alone:.2f} s")
        print(f"{'log of ' + str(options.megabytes) + ' MB':<32}MB/s    of grep's    most MiB")
        for name, pieces in logs(options.megabytes).items():
            with path.open("w") as file:
                file.writelines(pieces)
            peer, _ = seconds(["grep", "-cE", EXPRESSION, str(path)])
            took, held = seconds([launcher, "diagnose", str(path)])
            rate = path.stat().st_size / 1e6 / took
            print(f"{name:<32}{rate:>4.3g}    {peer / took:>9.2f}    {held:>8.0f}")


if __name__ == "__main__":
    main()
