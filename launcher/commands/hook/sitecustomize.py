"""Runs when any Python below `safe-launch wrap` starts, and replaces launchers by safe-launch.

It may be any Python, so only its standard library is needed. safe-launch itself takes over in a
separate process, or when `torch.distributed.run` is called.
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
"""Modules that are replaced if Python is started with `-m`, and their launchers."""
SCRIPTS = {
    b"from torch.distributed.run import main": "torchrun",
    b"from deepspeed.launcher.runner import main": "deepspeed",
    b"from safe_launch.cli import main": "safe-launch",
}
"""Commands whose scripts are replaced, recognized by a line of the script."""
LONGEST = 1000
"""Bytes of such a script at most."""


def launcher() -> str | None:
    """The launcher as which this process was started, or None."""
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
    """Continues as safe-launch, or exits if this Python doesn't have it."""
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
        os.write(2, b"[safe-launch] hint: install it there, with its torch\n")
        os._exit(64)


class Waiting:
    """Waits for the import of torch's launcher, and makes it call safe-launch."""

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
    """Replaces `torch.distributed.run.run`."""
    import importlib

    _require()
    importlib.import_module("safe_launch.inner_launch").run(args)


def shadowed() -> None:
    """Removes our folder from the path, and runs the `sitecustomize` that it has hidden."""
    sys.path[:] = [path for path in sys.path if path != HERE]
    hook = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = hook


if VARIABLE in os.environ:
    name = launcher()
    if name is not None:
        replace(name)
    sys.meta_path.insert(0, Waiting())
    shadowed()
