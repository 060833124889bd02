"""A network switch in user space: moves Ethernet frames between hosts, and loses or delays them.

    python tests/support/switch.py PORTS   # makes the interfaces port-0, port-1, ... where it runs

It says `ready` once they exist; then each may be moved into another network namespace. Lines on
its standard input change a port's weather: `NUMBER DELAY LOSS`, in seconds and as a part of 1. Both
hold for what comes from the port's host and for what goes to it. At the end of its input it ends.

The kernel's own (`tc netem`) would do, but not every kernel is built with it.
"""

from __future__ import annotations

import heapq
import os
import random
import select
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from itertools import count

FRAME = 65_535 + 14
"""The longest frame in bytes: the largest MTU of such a device, and Ethernet's header."""
BURST = 64
"""Frames that are taken from one port before another has its turn."""
# linux/if_tun.h
TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000


@dataclass
class Port:
    """A host's end of the cable.

    Attributes:
        device: descriptor; reading gives what the host has sent, writing is what it receives.
        delay: seconds that a frame takes.
        loss: the part of the frames that is lost.
    """

    device: int
    delay: float = 0.0
    loss: float = 0.0


def mac(number: int) -> bytes:
    """The hardware address of a port's host; a local one by its second bit."""
    return bytes((2, 0, 0, 0, number >> 8, number & 255))


def opened(number: int) -> Port:
    """A new interface `port-NUMBER`."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"port-%d" % number, IFF_TAP | IFF_NO_PI))
    return Port(device)


def serve(ports: list[Port]) -> None:
    """Moves frames until the input ends."""
    chance = random.Random(0)
    by_mac = {mac(number): port for number, port in enumerate(ports)}
    by_device = {port.device: port for port in ports}
    under_way: list[tuple[float, int, Port, bytes]] = []
    serial = count()
    poll = select.poll()
    for descriptor in (sys.stdin.fileno(), *by_device):
        poll.register(descriptor, select.POLLIN)
    while True:
        pause = max(0.0, under_way[0][0] - time.monotonic()) * 1000 if under_way else None
        for descriptor, _ in poll.poll(pause):
            if descriptor not in by_device:
                line = sys.stdin.readline()
                if not line:
                    return
                number, delay, loss = line.split()
                ports[int(number)].delay, ports[int(number)].loss = float(delay), float(loss)
                print("done", flush=True)
                continue
            source = by_device[descriptor]
            for _ in range(BURST):
                try:
                    frame = os.read(descriptor, FRAME)
                except OSError:  # nothing more, or the interface is down
                    break
                known = by_mac.get(frame[:6])
                for port in [known] if known else [one for one in ports if one is not source]:
                    if any(one.loss and chance.random() < one.loss for one in (source, port)):
                        continue
                    delay = source.delay + port.delay
                    heapq.heappush(under_way, (time.monotonic() + delay, next(serial), port, frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, port, frame = heapq.heappop(under_way)
            with suppress(OSError):  # the host is gone, or its interface is down
                os.write(port.device, frame)


if __name__ == "__main__":
    all_ports = [opened(number) for number in range(int(sys.argv[1]))]
    print("ready", flush=True)
    serve(all_ports)
