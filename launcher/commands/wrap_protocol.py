"""What `wrap` and the launches below it share: variables, the hook, the socket."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "SAFE_LAUNCH_WRAP_ID"
"""Environment variable that marks the processes below a wrapped command, workers among them."""
OPTIONS = "SAFE_LAUNCH_WRAP_OPTIONS"
"""Environment variable with the options for inner launches; enables the hook."""
HOOK = Path(__file__).with_name("hook")
"""The folder whose `sitecustomize` makes a launcher an inner launch."""


def hooked(environment: Mapping[str, str], mark: str, options: Sequence[str]) -> dict[str, str]:
    """The environment of a wrapped command."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else str(HOOK),
        MARK: mark,
        OPTIONS: json.dumps(list(options)),
    }


def unhooked(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that a launch would have without `wrap`, except for the mark."""
    rest = {name: value for name, value in environment.items() if name != OPTIONS}
    path = rest.pop("PYTHONPATH", "").split(os.pathsep)
    own = [folder for folder in path if folder != str(HOOK)]
    return rest | ({"PYTHONPATH": os.pathsep.join(own)} if any(own) else {})


def address(mark: str) -> str:
    """The address of `wrap`'s socket, in Linux's abstract namespace."""
    return f"\0safe-launch-wrap-{mark}"
