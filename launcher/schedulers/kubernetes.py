"""A Kubernetes Indexed Job with a headless Service, alone or in a JobSet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core.errors import LaunchError
from .reported import Reported, Stated, number, stated
from .this_host import Here


def read(environment: Mapping[str, str], here: Here) -> Reported | None:
    """The pod's index, and the name of the pod with index 0.

    Such a pod's host name is `<job>-<index>`. If its template has a subdomain, the kubelet
    writes `<job>-<index>.<subdomain>.<namespace>.svc...` into /etc/hosts, and the Service resolves
    all of these names. The environment doesn't have the number of pods: the manifest sets
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


NO_SERVICE = LaunchError(
    "the pods of this job can't be found by name: there is no `subdomain`",
    "name a headless Service in the pod template's `subdomain`, or give --master-addr",
)
