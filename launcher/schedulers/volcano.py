"""Volcano's `env` and `svc` plugins, which Huawei's ModelArts uses too."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .reported import Reported, Stated, number
from .this_host import Here

FIRST = ("MASTER", "LAUNCHER")
"""Tasks whose pods precede the others."""


def read(environment: Mapping[str, str], here: Here) -> Reported | None:
    """The pod's place among the hosts that Volcano lists by task.

    If there are several tasks, the pod is found by its name, and these must be a master's and
    workers'; the order of others is unknown.

    pkg/controllers/job/plugins/svc/svc.go: VC_<TASK>_HOSTS, separated by commas; env/env.go:
    VC_TASK_INDEX, and VK_TASK_INDEX as its older name.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    tasks = {
        match[1]: [host for host in value.split(",") if host]
        for name, value in environment.items()
        if (match := re.fullmatch(r"VC_(\w+)_HOSTS", name)) and value
    }
    index = next((n for n in ("VC_TASK_INDEX", "VK_TASK_INDEX") if environment.get(n)), None)
    if not tasks or index is None:
        return None
    if len(tasks) == 1:
        [(task, every)] = tasks.items()
        rank, origin = number(environment, index) or 0, index
    else:
        task = next((name for name in FIRST if name in tasks), "")
        if set(tasks) != {task, "WORKER"}:
            return None
        every = tasks[task] + tasks["WORKER"]
        names = [host.partition(".")[0] for host in every]
        if here.name.partition(".")[0] not in names:
            return None
        rank, origin = names.index(here.name.partition(".")[0]), "this pod's name in them"
    listed = " and ".join(f"VC_{task}_HOSTS" for task in sorted(tasks))
    return Reported(
        by="Volcano",
        nodes=Stated((len(every), len(every)), listed),
        rank=Stated(rank, origin),
        address=Stated(every[0], f"VC_{task}_HOSTS"),
        hosts=tuple(every),
    )
