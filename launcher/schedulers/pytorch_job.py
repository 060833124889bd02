"""Kubeflow's PyTorchJob, and Volcano's `pytorch` plugin: torch's own variables, a rank per pod."""

from __future__ import annotations

from collections.abc import Mapping

from .reported import Reported, Stated, number, port, stated
from .this_host import Here


def read(environment: Mapping[str, str], _here: Here) -> Reported | None:
    """The pod's place, by WORLD_SIZE and RANK, which count pods.

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
