"""Open MPI, and MPIs with Hydra (MPICH, Intel MPI): `mpirun safe-launch ...`."""

from __future__ import annotations

from collections.abc import Mapping

from .reported import Reported, Stated, number, port, stated
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
        address = stated(environment.get("MASTER_ADDR"), "MASTER_ADDR")
        if address is None and beside == size:
            address = Stated("127.0.0.1", f"all on this host: {beside_name}")
        listens = environment.get("MASTER_PORT")
        has_tasks = beside > 1
        return Reported(
            by=by,
            nodes=Stated((size, size), size_name),
            rank=Stated(rank, rank_name),
            address=address,
            port=Stated(port(listens, "MASTER_PORT"), "MASTER_PORT") if listens else None,
            job=stated(environment.get("PMIX_NAMESPACE"), "PMIX_NAMESPACE"),
            local=number(environment, index_name) or 0,
            beside=beside,
            nproc=Stated(1, f"one process for each worker: {beside_name}") if has_tasks else None,
            has_tasks=has_tasks,
        )
    return None
