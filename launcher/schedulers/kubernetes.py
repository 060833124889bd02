"""A pod's place in its job: Kubernetes' own jobs, Kubeflow's and Volcano's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ..core.errors import LaunchError
from .reported import Reported, Stated, number, port, stated
from .this_host import Here

FIRST_TASKS = ("MASTER", "LAUNCHER")
"""Volcano's tasks whose pods precede the others."""
NO_SERVICE = LaunchError(
    "the pods of this job can't be found by name: there is no `subdomain`",
    "name a headless Service in the pod template's `subdomain`, or give --master-addr",
)


def indexed_job(environment: Mapping[str, str], here: Here) -> Reported | None:
    """The index of a pod of an Indexed Job, alone or in a JobSet, and the name of pod 0.

    Such a pod's host name is `<job>-<index>`. If its template has a subdomain, the kubelet
    writes `<job>-<index>.<subdomain>.<namespace>.svc...` into /etc/hosts, and the headless Service
    resolves all of these names. The environment doesn't have the number of pods: the manifest sets
    `--nnodes` or PET_NNODES, without which every pod trains alone.

    Raises:
        LaunchError: JOB_COMPLETION_INDEX holds no number.
    """
    index = number(environment, "JOB_COMPLETION_INDEX")
    if index is None:
        return None
    name, domain = here.name.partition(".")[0], here.full_name().partition(".")[2]
    job, dash, ordinal = name.rpartition("-")
    report = Reported(by="Kubernetes", rank=Stated(index, "JOB_COMPLETION_INDEX"))
    if not dash or ordinal != str(index) or not domain:
        return report
    first = f"{job}-0.{domain.partition('.')[0]}"
    return replace(
        report,
        address=Stated(first, "this pod's host name and its subdomain"),
        job=stated(job, "this pod's host name"),
    )


def pytorch_job(environment: Mapping[str, str], _here: Here) -> Reported | None:
    """A pod of Kubeflow's PyTorchJob or Volcano's `pytorch` plugin: torch's variables count pods.

    training-operator, pkg/controller.v1/pytorch/envvar.go; volcano,
    plugins/distributed-framework/pytorch/pytorch.go. Operators that support several workers per pod
    set PET_NNODES too and count workers in WORLD_SIZE: then only PET_* is read. An environment with
    LOCAL_RANK is a worker's, not a pod's.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    names = ("KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
    if not all(environment.get(name) for name in names):
        return None
    if "LOCAL_RANK" in environment or environment.get("PET_NNODES"):
        return None
    pods = number(environment, "WORLD_SIZE", 1) or 1
    return Reported(
        by="PyTorchJob",
        nodes=Stated((pods, pods), "WORLD_SIZE"),
        rank=stated(number(environment, "RANK"), "RANK"),
        address=Stated(environment["MASTER_ADDR"], "MASTER_ADDR"),
        port=Stated(port(environment["MASTER_PORT"], "MASTER_PORT"), "MASTER_PORT"),
    )


def volcano(environment: Mapping[str, str], here: Here) -> Reported | None:
    """A pod of Volcano's `env` and `svc` plugins, which Huawei's ModelArts uses too.

    They list the hosts by task. If there are several tasks, the pod is found by its name, and these
    must be a master's and workers'; the order of others is unknown.

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
        task = next((name for name in FIRST_TASKS if name in tasks), "")
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
