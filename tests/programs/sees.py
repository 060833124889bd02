"""Tells what a script sees of itself and of its environment."""

import atexit
import json
import multiprocessing
import os
import pickle
import sys


class Thing:
    pass


def square(number):
    return number * number


def main():
    things = {
        "argv": sys.argv,
        "name": __name__,
        "file": __file__,
        "path0": sys.path[0],
        "cwd": os.getcwd(),
        "main": sys.modules["__main__"].__dict__ is globals(),
        "spec": __spec__ is None,
        "pickle": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
        "stdin": sys.stdin.read(),
        "environment": sorted(
            name for name in os.environ if name.isupper() and not name.startswith(("SAFE", "PWD"))
        ),
    }
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            things[method] = pool.map(square, [3])
    with open(os.environ["SEEN"] + os.environ["RANK"], "w") as file:
        json.dump(things, file)


@atexit.register
def goodbye():
    with open(os.environ["SEEN"] + os.environ["RANK"] + ".atexit", "w") as file:
        file.write(Thing.__name__)


if __name__ == "__main__":
    main()
