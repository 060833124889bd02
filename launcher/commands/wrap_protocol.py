"""Protocol between `wrap` and the launches below it: variables, the hook, the socket."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "SAFE_LAUNCH_WRAP_ID"
"""Environment variable that marks the processes below a wrapped command, workers among them."""
OPTIONS = "SAFE_LAUNCH_WRAP_OPTIONS"
"""Environment variable with the options for inner launches; enables the hook."""
SOCKET = "SAFE_LAUNCH_WRAP_SOCKET"
"""Environment variable with the folder of `wrap`'s socket."""
NAME = "wrap"
"""The socket's name there."""
HELLO = b"launch\n"
"""The first bytes from an inner launch; its exit code on a line follows at its end."""
LONGEST = len(HELLO) + len(b"255\n")
"""Bytes that it sends at most."""
HOOK = Path(__file__).with_name("hook")
"""The folder whose `sitecustomize` makes a launcher an inner launch."""


def hooked(
    environment: Mapping[str, str], mark: str, sockets: Path, options: Sequence[str]
) -> dict[str, str]:
    """The environment of a wrapped command."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK),
        MARK: mark,
        SOCKET: str(sockets),
        OPTIONS: json.dumps(list(options)),
    }


def unhooked(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that a launch would have without `wrap`, except for the mark."""
    rest = {name: value for name, value in environment.items() if name not in (OPTIONS, SOCKET)}
    path = rest.pop("PYTHONPATH", "").split(os.pathsep)
    folders = [folder for folder in path if folder != str(HOOK)]
    return rest | ({"PYTHONPATH": os.pathsep.join(folders)} if any(folders) else {})


def code_of(sent: bytes) -> int | None:
    """The exit code in an inner launch's bytes; None if it was killed before."""
    code = re.fullmatch(HELLO + rb"(\d{1,3})\n", sent)
    return int(code[1]) if code else None
