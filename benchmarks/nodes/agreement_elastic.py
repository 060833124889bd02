"""The peer of `agreement.py`: torch elastic's rendezvous, with threads as torchrun's agents.

    python benchmarks/nodes/agreement_elastic.py CASE

CASE is a JSON object. Prints one with the measurements, times in seconds. The agents have no
workers; each has its own connection to the store and its own handler, and does what torchrun's
agent does around its workers (`_invoke_run` in torch/distributed/elastic/agent/server/api.py): it
joins, checks ten times a second for nodes waiting for another round, and then joins again. The one
with a failure joins again at once. Other data that agents exchange (the address of the workers'
store, ranks) isn't counted.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

INTERVAL = 0.1
"""Seconds between an agent's polls: torchrun's default `--monitor-interval`."""


@dataclass(slots=True)
class Counted:
    """A store that counts its operations and the bytes in both directions.

    Attributes:
        store: the real one.
        operations: the number of calls.
        bytes: letters or bytes in both directions.
    """

    store: TCPStore
    operations: int = 0
    bytes: int = 0

    def __getattr__(self, name: str) -> Any:
        """The store's own function, counted."""

        def asked(*arguments: Any) -> Any:
            answer = getattr(self.store, name)(*arguments)
            texts = [one for one in (*arguments, answer) if isinstance(one, str | bytes)]
            self.operations += 1
            self.bytes += sum(map(len, texts))
            return answer

        return asked


@dataclass(slots=True)
class Scene:
    """State shared by all agents: their barrier, and the times of their joins."""

    nodes: int
    port: int
    gate: threading.Barrier
    stores: list[Counted] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=lambda: {"joined": [], "again": []})


def agent(scene: Scene, number: int) -> None:
    """Joins, and joins again after a failure of this or another agent."""
    store = TCPStore("127.0.0.1", scene.port, is_master=False)
    counted = Counted(store)
    scene.stores.append(counted)
    scene.gate.wait()
    backend = C10dRendezvousBackend(counted, "agreement")
    handler = DynamicRendezvousHandler.from_backend(
        "agreement", store, backend, scene.nodes, scene.nodes, "127.0.0.1"
    )
    handler.next_rendezvous()
    scene.times["joined"].append(time.monotonic())
    scene.gate.wait()
    if number != scene.nodes // 2:
        while not handler.num_nodes_waiting():
            time.sleep(INTERVAL)
    handler.next_rendezvous()
    scene.times["again"].append(time.monotonic())
    scene.gate.wait()


def guarded(scene: Scene, number: int) -> None:
    """Runs one agent; its error invalidates all numbers."""
    try:
        agent(scene, number)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(case: dict[str, Any]) -> None:
    """Runs all agents and prints the measurements."""
    logging.disable(logging.CRITICAL)
    nodes = case["nodes"]
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    scene = Scene(nodes, server.port, threading.Barrier(nodes + 1))
    for number in range(nodes):
        threading.Thread(target=guarded, args=(scene, number), daemon=True).start()
    scene.gate.wait()
    began = time.monotonic()
    scene.gate.wait()
    failed = time.monotonic()
    scene.gate.wait()
    measured = {
        "nodes": nodes,
        "joined": max(scene.times["joined"]) - began,
        "again": max(scene.times["again"]) - failed,
        "operations": sum(store.operations for store in scene.stores),
        "bytes": sum(store.bytes for store in scene.stores),
    }
    print(json.dumps(measured), flush=True)
    os._exit(0)  # the agents' heartbeats still run


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
