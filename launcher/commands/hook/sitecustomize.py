"""Runs as every Python below `safe-launch wrap` starts: a launcher becomes safe-launch.

Whatever Python that is: it needs nothing but its standard library. safe-launch itself takes over in
a process of its own, or when `torch.distributed.run` is called.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from importlib.machinery import ModuleSpec
    from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 5 ms
VARIABLE = "SAFE_LAUNCH_WRAP_OPTIONS"
RUN = "torch.distributed.run"
MODULES = {RUN: "torchrun", "deepspeed.launcher.runner": "deepspeed", "safe_launch": "safe-launch"}
"""What is replaced where Python is started with `-m`, and what it is."""
SCRIPTS = {
    b"from torch.distributed.run import main": "torchrun",
    b"from deepspeed.launcher.runner import main": "deepspeed",
    b"from safe_launch.cli import main": "safe-launch",
}
"""What is replaced where Python is started with a command's script, recognized by a line of it."""
LONGEST = 1000
"""Bytes of such a script at most."""


def launcher() -> str | None:
    """Which launcher this process has been started as, or None."""
    started = getattr(sys, "orig_argv", None)
    if not started:
        return None
    if sys.argv[0] != "-m":
        return _launcher_of_script(sys.argv[0])
    name = started[len(started) - len(sys.argv)]
    if name.startswith("-"):
        name = name.partition("m")[2]
    return MODULES.get(name)


def _launcher_of_script(path: str) -> str | None:
    if not path or path == "-c" or path.endswith(".py"):
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            lines = file.read(LONGEST + 1).splitlines()
    except OSError:
        return None
    if sum(map(len, lines)) > LONGEST:
        return None
    return next((SCRIPTS[line.strip()] for line in lines if line.strip() in SCRIPTS), None)


def replace(name: str) -> None:
    """Goes on as safe-launch, or ends where this Python has none."""
    _require()
    command = [sys.executable, "-P", "-m", "safe_launch.inner_launch", name] + sys.argv[1:]  # noqa: RUF005
    os.execv(sys.executable, command)


def _require() -> None:
    import importlib.util

    if importlib.util.find_spec("safe_launch") is None:
        text = (
            "[safe-launch] error: wrap: safe-launch isn't installed for %s, which launches here\n"
        )
        os.write(2, (text % sys.executable).encode())
        os.write(2, b"[safe-launch] hint: install it there, beside its torch\n")
        os._exit(64)


class Waiting:
    """Waits for the import of torch's launcher, and has it start safe-launch when it is called."""

    def find_spec(self, name: str, *_others: object) -> ModuleSpec | None:  # noqa: D102
        if name != RUN:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_replace(module: ModuleType) -> None:
                execute(module)
                module.__dict__["run"] = run

            spec.loader.exec_module = execute_and_replace  # type: ignore[method-assign]
        return spec


def run(args: argparse.Namespace) -> None:
    """Stands for `torch.distributed.run.run`."""
    import importlib

    _require()
    importlib.import_module("safe_launch.inner_launch").run(args)


def shadowed() -> None:
    """Takes our folder out of the path, and runs the module of this name that it has hidden."""
    sys.path[:] = [path for path in sys.path if path != HERE]
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


if VARIABLE in os.environ:
    found = launcher()
    if found is not None:
        replace(found)
    sys.meta_path.insert(0, Waiting())
    shadowed()
