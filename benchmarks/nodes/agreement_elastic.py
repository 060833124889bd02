"""The peer of `agreement.py`: torch elastic's rendezvous, with threads as torchrun's agents.

    python benchmarks/nodes/agreement_elastic.py CASE

CASE is a JSON object. Prints one: what was measured, times in seconds. The agents have no workers;
each has a connection to the store of its own and its own handler, and does what torchrun's agent
does around its workers (`_invoke_run` in torch/distributed/elastic/agent/server/api.py): it joins,
looks ten times a second whether somebody waits for another round, and joins again then. The one
that has had a failure joins again at once. What agents exchange beside that (the address of the
workers' store, ranks) isn't counted.
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
"""Seconds between two looks of an agent: torchrun's `--monitor-interval` by default."""


@dataclass(slots=True)
class Counted:
    """A store that counts what it is asked, and the letters or bytes that go there and back.

    Attributes:
        store: the real one.
        operations: how often it was asked.
        bytes: how much went either way.
    """

    store: TCPStore
    operations: int = 0
    bytes: int = 0

    def __getattr__(self, name: str) -> Any:
        """The store's own function, counting."""

        def asked(*arguments: Any) -> Any:
            answer = getattr(self.store, name)(*arguments)
            texts = [one for one in (*arguments, answer) if isinstance(one, str | bytes)]
            self.operations += 1
            self.bytes += sum(map(len, texts))
            return answer

        return asked


@dataclass(slots=True)
class Scene:
    """What all agents share: where they wait for each other, and when each had joined."""

    nodes: int
    port: int
    gate: threading.Barrier
    stores: list[Counted] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=lambda: {"joined": [], "again": []})


def agent(scene: Scene, number: int) -> None:
    """One agent: joins, and joins again when another one or it itself has had a failure."""
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
    """One agent; where it can't do its part nobody's numbers count."""
    try:
        agent(scene, number)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(case: dict[str, Any]) -> None:
    """Runs all agents and prints what they saw."""
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
    os._exit(0)  # the agents' heartbeats go on


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
