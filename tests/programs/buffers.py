"""Leaves the shared memory that DeepSpeed leaves on processors, without its weight."""

import os
from multiprocessing import resource_tracker, shared_memory

names = (os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"))
name = f"deepspeed_allreduce_buffer_{os.getuid()}_{'_'.join(names)}"
memory = shared_memory.SharedMemory(name, create=True, size=64)
resource_tracker.unregister(f"/{name}", "shared_memory")
print(f"made {name}")
