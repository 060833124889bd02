"""Starts processes in every way that a training does, and writes down what came of it."""

import concurrent.futures
import json
import multiprocessing
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    """Squares, and which process computed them."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([index**2, int(multiprocessing.parent_process() is not None)])


class Kept:
    """A class of the script, for pickle."""

    def __init__(self, value):
        self.value = value


def work(number):
    return Kept(number**2), __name__, multiprocessing.current_process().name.partition("-")[0]


def main():
    seen = {}
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(1) as pool:
            seen[method] = [(one.value, name, who) for one, name, who in pool.map(work, [1, 2])]
        loader = DataLoader(Squares(), batch_size=2, num_workers=1, multiprocessing_context=method)
        seen[f"{method} loader"] = [one.tolist() for one in loader]
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        seen["executor"] = [one[0].value for one in pool.map(work, [3])]
    if "compile" in sys.argv:
        compiled = torch.compile(lambda x: (x * 2 + 1).relu().sum())
        seen["compiled"] = compiled(torch.arange(8.0)).item()
    with open(f"seen-{os.environ['RANK']}", "w") as file:
        json.dump(seen, file)


if __name__ == "__main__":
    main()
