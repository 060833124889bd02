"""A process's device memory besides tensors: the context, the libraries, the backend."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
from device.bench import MIB, Bench, Figure, told, used
from safe_launch.machine.profiles import profile_named

TITLE = "The device's context and the backend's buffers"
NEEDS = ("torch",)
SECONDS = 45


def run(bench: Bench) -> Iterator[Figure]:
    """Bytes by the vendor's count, before and after each; the first rank's device."""
    profile = profile_named(bench.profile)
    done = bench.run("torchrun", f"--nproc-per-node={bench.ranks}", __file__, bench.kind)
    sizes = told(done)
    context = f"context_gib {profile.context_gib:g} of {profile.name}"
    buffers = f"communication_gib {profile.communication_gib:g} of {profile.name}"
    for what, part, beside in (
        ("the context, with one tensor", "context", context),
        ("libraries after a product of matrices", "libraries", context),
        (f"the backend after an all_reduce, {bench.ranks_told}", "backend", buffers),
    ):
        here = f"{sizes[part] / MIB:.0f} MiB"
        yield Figure(what, here, f"{beside}, the profile", raw={part: sizes[part]})


def measure(kind: str) -> dict[str, int]:
    """Bytes that each step takes on this rank's device, without the allocator's."""
    place = int(os.environ["LOCAL_RANK"])
    before = used(place)
    import torch
    import torch.distributed as dist

    module = torch.get_device_module(kind)

    def held() -> int:
        module.synchronize()
        return used(place) - before - module.memory_reserved()

    module.set_device(place)
    one = torch.ones(1024, 1024, device=kind)
    context = held()
    product = one @ one
    libraries = held() - context
    dist.init_process_group(dist.get_default_backend_for_device(kind))
    dist.all_reduce(product)
    backend = held() - context - libraries
    dist.barrier()
    dist.destroy_process_group()
    return {"context": context, "libraries": libraries, "backend": backend}


if __name__ == "__main__":
    sizes = measure(sys.argv[1])
    if os.environ["RANK"] == "0":
        print("RESULT " + json.dumps(sizes), flush=True)
