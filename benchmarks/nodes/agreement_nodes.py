"""The other nodes of `agreement.py`: threads that really join node 0 and pretend to train.

    python benchmarks/nodes/agreement_nodes.py CASE

CASE is a JSON object. Prints one with the measurements, times in seconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from safe_launch.core.placement import Placement
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Setting
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.machine import detect
from safe_launch.nodes import secret
from safe_launch.nodes.connection import Connection
from safe_launch.nodes.messages import Ended, Failing, Join, Order, Ping, Pong, RunEnded, Stop
from safe_launch.nodes.peers import abbreviated
from safe_launch.nodes.rendezvous import join, join_of
from safe_launch.nodes.secret import Trust
from safe_launch.workload.read_workload import read_workload

TRAFFIC = 120
"""Offset in `struct tcp_info` of the bytes sent and received, followed by the segments sent and
received (linux/tcp.h, from `tcpi_bytes_acked` on)."""
Kind = TypeVar("Kind")


@dataclass(slots=True)
class Scene:
    """State shared by all nodes.

    Attributes:
        hello: a node's hello; each changes its rank and name.
        placement: of node 0.
        trust: the authentication between the nodes and node 0.
        failures: a node's records, each node with its own ranks.
        gate: the barrier between the phases.
        times: when each node had its answer, by phase.
        failed_at: the time of the failure's message.
        messages: their number, both ways.
        traffic: bytes and packets by the kernel's count, by connection.
    """

    hello: Join
    placement: Placement
    trust: Trust
    failures: Callable[[int], tuple[FailureRecord, ...]]
    gate: threading.Barrier
    times: dict[str, list[float]] = field(default_factory=dict)
    failed_at: float = 0.0
    messages: list[int] = field(default_factory=list)
    traffic: list[tuple[int, int]] = field(default_factory=list)


def take_part(scene: Scene, rank: int, is_failing: bool) -> None:
    """One node, from its hello to node 0's farewell."""
    hello = msgspec.structs.replace(scene.hello, rank=rank, host=f"node-{rank}")
    placement = replace(scene.placement, rank=rank)
    scene.gate.wait()
    link, _ = join(placement, scene.trust, hello, lambda _line: None)
    first = hear(link, Order)
    scene.times["agree"].append(time.monotonic())
    scene.gate.wait()
    scene.gate.wait()  # until node 0's workers run
    failures = scene.failures(first.first)
    if is_failing:
        scene.failed_at = time.monotonic()
        link.send(Failing(abbreviated(failures), time.monotonic()))
    hear(link, Stop)
    scene.times["stop"].append(time.monotonic())
    link.send(Ended(is_success=False, records=abbreviated(failures), now=time.monotonic()))
    second = hear(link, Order)
    scene.times["verdict"].append(time.monotonic())
    assert second.overrides[Setting.GRADIENT_CHECKPOINTING] == "non_reentrant", second
    # Join, admitted, welcome, two orders, stop, ended; the failing node also sent its failure.
    scene.messages.append(7 + is_failing)
    scene.traffic.append(traffic(link))
    scene.gate.wait()
    stop = hear(link, Stop)
    link.send(Ended(is_success=False, signal=stop.signal, now=time.monotonic()))
    hear(link, RunEnded)


def guarded(scene: Scene, rank: int, is_failing: bool) -> None:
    """Runs one node; its error invalidates all numbers."""
    try:
        take_part(scene, rank, is_failing)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def hear(link: Connection, kind: type[Kind]) -> Kind:
    """The next message besides heartbeats, which must be of this kind."""
    poll = select.poll()
    poll.register(link, select.POLLIN)
    while True:
        while not link.waiting:
            assert link.fault is None, link.fault
            poll.poll()
            link.waiting += link.receive()
        message = link.waiting.pop(0)
        if isinstance(message, kind):
            return message
        assert isinstance(message, Ping), message
        link.send(Pong())


def traffic(link: Connection) -> tuple[int, int]:
    """Bytes and packets of a connection so far, both ways together."""
    info = link.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TRAFFIC + 24)
    sent, received, out, into = struct.unpack_from("QQII", info, TRAFFIC)
    return sent + received, out + into


def wait_for(condition: Callable[[], bool]) -> None:
    """Polls until a condition is true."""
    while not condition():
        time.sleep(0.02)


def listens(port: int) -> bool:
    """Whether a port of this host is listened on, without connecting."""
    wanted = f":{port:04X}"
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    rows = [line.split() for path in tables for line in path.read_text().splitlines()[1:]]
    return any(row[1].endswith(wanted) and row[3] == "0A" for row in rows)


def run(folder: str, attempt: int, workers: int) -> bool:
    """Whether node 0's workers run, each of which writes a file."""
    return all(Path(folder, f"{attempt}-{rank}").exists() for rank in range(workers))


def is_idle(pid: int) -> bool:
    """Whether a process has waited for a while: node 0 listens while it imports torch."""
    before = processor_time(pid)
    time.sleep(0.5)
    return processor_time(pid) == before


def processor_time(pid: int) -> float:
    """Processor time used by a process, in seconds (proc_pid_stat(5): utime, stime)."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """A process's peak memory in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kibibytes,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(kibibytes) * 1024


def main(case: dict[str, Any]) -> None:
    """Runs all nodes and prints the measurements."""
    nodes, workers, port = case["nodes"], case["workers"], case["port"]
    placement = Placement(nodes, nodes, 1, "127.0.0.1", port, job="agreement")
    script, arguments = case["script"], tuple(case["arguments"])
    request = LaunchRequest(script, False, arguments, workers, "here", placement=placement)
    record = msgspec.convert(json.loads(Path(case["record"]).read_text()), FailureRecord)

    def failures(first: int) -> tuple[FailureRecord, ...]:
        """The records of a node's ranks: torch prefixes each line with the rank."""
        now, told = time.monotonic(), f"[rank{record.rank}]:"
        return tuple(
            replace(
                record,
                rank=rank,
                at=now,
                log_tail=tuple(line.replace(told, f"[rank{rank}]:") for line in record.log_tail),
            )
            for rank in range(first, first + workers)
        )

    own = join_of(request, detect.detect(), dict(read_workload(request).versions))
    trust = secret.of_job(None, placement, os.environ, is_required=False)
    scene = Scene(own, placement, trust, failures, threading.Barrier(nodes))
    scene.times = {"agree": [], "stop": [], "verdict": []}
    threads = [
        threading.Thread(target=guarded, args=(scene, rank, rank == nodes // 2))
        for rank in range(1, nodes)
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: listens(port) and is_idle(case["head"]))
    began = time.monotonic()
    scene.gate.wait()
    scene.gate.wait()
    wait_for(lambda: run(case["ready"], 0, workers))
    before = processor_time(case["head"])
    scene.gate.wait()
    scene.gate.wait()
    used, memory = processor_time(case["head"]) - before, memory_of(case["head"])
    wait_for(lambda: run(case["ready"], 1, workers))
    os.kill(case["head"], signal.SIGTERM)
    for thread in threads:
        thread.join()
    print(
        json.dumps(
            {
                "nodes": nodes,
                "agree": max(scene.times["agree"]) - began,
                "stop": max(scene.times["stop"]) - scene.failed_at,
                "verdict": max(scene.times["verdict"]) - scene.failed_at,
                "messages": sum(scene.messages),
                "bytes": sum(size for size, _ in scene.traffic),
                "packets": sum(count for _, count in scene.traffic),
                "memory": memory,
                "processor": used,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
