"""Writes down, as JSON in `seen-RANK`, all that a script can see of how it was started."""

import atexit
import faulthandler
import gc
import inspect
import json
import locale
import logging
import multiprocessing
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
import typing
import warnings

import __main__

ANNOTATED: int = 3


class Thing:
    """A class of the script."""

    kind: str = "thing"


def twice(number: int) -> int:
    """A function of the script."""
    return 2 * number


def descriptors(folder):
    """What is open, without the one that lists it; a name stands for what differs in each run."""
    found = {}
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        found[int(name)] = target.partition(":")[0].partition("[")[0]
    return {name: target for name, target in sorted(found.items()) if "/proc" not in target}


def status(*names):
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {name: lines[name].strip() for name in names}


def child(**options):
    code = "import os; print(sorted(int(one) for one in os.listdir('/proc/self/fd'))[:-1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)
    return done.stdout.strip() or done.stderr


def stream(one):
    names = ("encoding", "errors", "line_buffering", "write_through", "mode", "name", "newlines")
    return {name: str(getattr(one, name, None)) for name in names} | {"tty": one.isatty()}


def in_main():
    names = sorted(name for name in vars(__main__) if name.startswith("__"))
    return {
        "names": names,
        "same": sys.modules["__main__"].__dict__ is globals(),
        "name": __name__,
        "file": __file__,
        "cached": str(globals().get("__cached__")),
        "package": __package__,
        "spec": None if __spec__ is None else [__spec__.name, __spec__.origin, __spec__.parent],
        "doc": __doc__,
        "builtins": type(__builtins__).__name__,
        "loader": type(__loader__).__name__,
        "annotations": str(__annotations__),
    }


def of_python():
    return {
        "argv": sys.argv,
        "path": sys.path,
        "flags": str(sys.flags),
        "executable": sys.executable,
        "prefixes": [sys.prefix, sys.exec_prefix, sys.base_prefix, str(sys.pycache_prefix)],
        "warnoptions": sys.warnoptions,
        "xoptions": sys._xoptions,
        "hooks": [
            sys.excepthook is sys.__excepthook__,
            sys.displayhook is sys.__displayhook__,
            sys.unraisablehook is sys.__unraisablehook__,
            threading.excepthook.__module__,
            str(sys.gettrace()),
            str(sys.getprofile()),
            str(threading.gettrace()),
        ],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()],
        "streams": {name: stream(getattr(sys, name)) for name in ("stdin", "stdout", "stderr")},
        "original": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks],
        "warnings": [str(one) for one in warnings.filters],
        "logging": [str(logging.root.handlers), logging.root.level, logging.root.disabled],
        "faulthandler": faulthandler.is_enabled(),
        "locale": [locale.getlocale(), sys.getfilesystemencoding(), locale.getpreferredencoding()],
        "importing": sorted(type(one).__name__ for one in sys.path_hooks),
        "dont_write_bytecode": sys.dont_write_bytecode,
    }


def of_the_process():
    return {
        "cwd": os.getcwd(),
        "umask": f"{os.umask(0o77):o}",
        "leads": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        "priority": [os.nice(0), sorted(os.sched_getaffinity(0))],
        "limits": [resource.getrlimit(one) for one in range(16)],
        "signals": {str(n): str(signal.getsignal(n)) for n in sorted(signal.valid_signals())},
        "masks": status("SigBlk", "SigIgn", "SigCgt", "SigPnd"),
        "descriptors": descriptors("/proc/self/fd"),
        "child": child(),
        "child that inherits": child(close_fds=False),
        "threads": [one.name for one in threading.enumerate()],
        "native threads": len(os.listdir("/proc/self/task")),
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
        "stdin": sys.stdin.read(),
        "multiprocessing": [
            multiprocessing.current_process().name,
            str(multiprocessing.parent_process()),
            str(multiprocessing.get_start_method(allow_none=True)),
            str(multiprocessing.active_children()),
        ],
    }


def of_the_script():
    return {
        "source": inspect.getsource(twice),
        "source of class": inspect.getsource(Thing),
        "module of class": [Thing.__module__, inspect.getmodule(Thing) is __main__],
        "pickle": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
        "by reference": pickle.dumps(twice).hex(),
        "hints": str(typing.get_type_hints(Thing)),
        "caller": [sys._getframe().f_back.f_code.co_name, sys._getframe(1).f_code.co_filename],
    }


def chances():
    import numpy
    import torch

    seen = {"python": random.random(), "numpy": float(numpy.random.rand())}
    seen["bytes"] = os.urandom(8).hex()
    seen["torch"] = float(torch.rand(1))
    seen["torch seed"] = torch.initial_seed()
    return seen


def main():
    umask = os.umask(0)
    os.umask(umask)
    seen = {"process": of_the_process()}
    os.umask(umask)
    seen["process"]["umask"] = f"{umask:o}"
    seen |= {"main": in_main(), "python": of_python(), "script": of_the_script()}
    seen["environment"] = dict(os.environ)
    seen["original command"] = sys.orig_argv
    seen["exit handlers"] = atexit._ncallbacks()
    seen["chances"] = chances()
    with open(f"seen-{os.environ['RANK']}", "w") as file:
        json.dump(seen, file)


if __name__ == "__main__":
    main()
