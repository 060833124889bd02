"""Open MPI, and MPIs with Hydra (MPICH, Intel MPI): `mpirun safe-launch ...`."""

from __future__ import annotations

from collections.abc import Mapping

from .reported import Reported, number, port
from .this_host import Here

KINDS: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "Open MPI",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("MPI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Variables by kind: number of processes, rank, index on the host, number of processes there.

Slurm's PMI sets PMI_SIZE and PMI_RANK too, but not the last two of Hydra's.
"""


def read(environment: Mapping[str, str], _here: Here) -> Reported | None:
    """This launcher's place among the processes of mpirun.

    MPI's variables don't contain rank 0's host, unless all ranks are on one host.

    Raises:
        LaunchError: a variable has an invalid value.
    """
    for by, size_name, rank_name, index_name, beside_name in KINDS:
        size, rank = number(environment, size_name, 1), number(environment, rank_name)
        beside = number(environment, beside_name, 1)
        if size is None or rank is None or beside is None:
            continue
        address = environment.get("MASTER_ADDR", "")
        listens = environment.get("MASTER_PORT", "")
        return Reported(
            by=by,
            nodes=(size, size),
            rank=rank,
            address=address or ("127.0.0.1" if beside == size else ""),
            port=port(listens, "MASTER_PORT") if listens else None,
            job=environment.get("PMIX_NAMESPACE", ""),
            local=number(environment, index_name) or 0,
            beside=beside,
            nproc=1 if beside > 1 else None,
            has_tasks=beside > 1,
            origins={
                "nodes": size_name,
                "rank": rank_name,
                "address": "MASTER_ADDR" if address else f"all on this host: {beside_name}",
                "port": "MASTER_PORT",
                "job": "PMIX_NAMESPACE",
                "nproc": f"one process for each worker: {beside_name}",
            },
        )
    return None
