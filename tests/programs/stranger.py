"""Somebody who is on the network and not of the job: python stranger.py PART ARGUMENTS.

- `join HOST PORT`: says what a node says, and a forged failure;
- `host PORT open|forged`: holds the port in node 0's place;
- `relay HOST PORT`: passes all on between a node and node 0, then sends again what the node sent;
- `flood HOST PORT`: connects without end.

Says `ready`; at a line on stdin it ends with all that it was told, as a list in JSON.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time

MAGIC = b"safe-launch link 2"
HELLO = 512
JOIN = json.dumps(
    {"type": "Join", "job": "", "rank": 1, "host": "\x1b]0;evil\x07", "nproc": 1}
).encode()
FAILURE = b'{"type": "Ended", "is_success": false, "records": [], "signal": 15, "now": 1.0}'
told = []
threads = []
"""What is awaited at the end: those who listen, until nobody speaks to them any more."""


def hello(kind):
    return MAGIC + bytes([kind]) + os.urandom(HELLO - len(MAGIC) - 2) + b"\n"


def framed(*payloads):
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def say(where, content):
    """What is answered to some bytes."""
    with socket.create_connection(where, timeout=600) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
        hear(connection)


def hear(connection):
    said = b""
    with contextlib.suppress(OSError):
        while chunk := connection.recv(65536):
            said += chunk
    told.append(said.decode("latin-1"))


def begin(target, *arguments):
    threads.append(threading.Thread(target=target, args=arguments, daemon=True))
    threads[-1].start()


def join(host, port):
    for kind in (0, 1, 2):
        for proof in (b"", bytes(32), os.urandom(32)):
            say((host, int(port)), hello(kind) + proof + framed(JOIN, FAILURE))
    say((host, int(port)), JOIN + b"\n" + FAILURE + b"\n")


def host(port, kind):
    server = socket.create_server(("", int(port)))

    def serve():
        while True:
            connection, _ = server.accept()
            connection.sendall(MAGIC + bytes([kind == "forged"]) + os.urandom(64))
            connection.sendall(framed(b'{"type": "RunEnded", "code": 0, "line": "evil"}'))
            begin(hear, connection)

    threading.Thread(target=serve, daemon=True).start()


def relay(host, port):
    server = socket.create_server(("", int(port)))

    def carry(source, target, kept):
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                kept += chunk
                target.sendall(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve():
        node, _ = server.accept()
        head = socket.create_connection((host, int(port)))
        sent, got = bytearray(), bytearray()
        sides = [(node, head, sent), (head, node, got)]
        for side in sides:
            begin(carry, *side)
        while len(sent) < 2 * HELLO:  # the hello, the proof and a join
            time.sleep(0.1)
        say((host, int(port)), bytes(sent))

    begin(serve)


def flood(host, port):
    def pour():
        held = []
        while True:
            with contextlib.suppress(OSError):
                held.append(socket.create_connection((host, int(port)), timeout=5))
            del held[:-500]

    for _ in range(4):
        threading.Thread(target=pour, daemon=True).start()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.join()
    print(json.dumps(told), flush=True)
    os._exit(0)
