"""The rendezvous of a job's nodes: node 0 waits for the others, which look for it."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import ExitCode, LaunchError, reason_of
from ..core.hardware import Hardware
from ..core.placement import Placement
from ..core.quantities import count_of
from ..core.request import LaunchRequest
from ..core.secrets import hidden_arguments
from ..core.version import VERSION
from ..machine import host
from ..schedulers.this_host import owns
from ..system import regular_files
from .admission import PATIENCE, Waiting, clock, dismiss, seat
from .compatibility import in_rank_order
from .connection import Connection, broadcast, keep_alive, next_message
from .joining import Accepted, Join, Refusal, RunStarted
from .listener import STRANGERS, Listener, listening
from .messages import FromHead
from .secret import Trust
from .secure_channel import joining

OTHERS = 256
"""Descriptors that node 0 needs besides its connections: its workers' pipes, files, libraries."""
ANOTHER_PORT = "give all nodes another --master-port (or --rdzv-endpoint)"
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds between attempts to reach node 0; the last value repeats."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The nodes of a job.

    Attributes:
        joins: the nodes' joins, in the order of their ranks, node 0's first.
        connections: connections to the other nodes, in the same order.
        listener: the job's port, for nodes that come too late.
    """

    joins: tuple[Join, ...]
    connections: tuple[Connection, ...]
    listener: Listener

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the profiles of all nodes' devices."""
        names = (node.hardware.accelerator.name for node in self.joins)
        return tuple(dict.fromkeys(names))


def join_of(request: LaunchRequest, hardware: Hardware, versions: dict[str, str]) -> Join:
    """This node's join.

    Raises:
        LaunchError: the script can't be read.
    """
    if request.is_module or request.is_program:
        script = _digest(os.fsencode(request.script))
    else:
        script = _digest_of_script(Path(request.script))
    return Join(
        job=request.placement.job,
        rank=request.placement.rank,
        host=socket.gethostname(),
        nproc=request.nproc,
        hardware=replace(hardware, accelerator=replace(hardware.accelerator, environment={})),
        versions={"safe-launch": VERSION, "python": platform.python_version(), **versions},
        script=script,
        arguments=_digest(
            "\0".join(hidden_arguments(request.arguments)).encode(errors="surrogateescape")
        ),
        nnodes=request.placement.range_text,
        never_changed=tuple(setting for setting, _ in request.limits.never_changed),
    )


def _digest_of_script(path: Path) -> str:
    """The digest of a file, or of a folder's `__main__.py`.

    Raises:
        LaunchError: it can't be read.
    """
    try:
        with regular_files.opened(path / "__main__.py" if path.is_dir() else path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LaunchError.because(error, f"{path} can't be read") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def gather(
    placement: Placement, head: Join, listener: Listener, say: Callable[[str], None]
) -> Joined:
    """Node 0's part: waits until the nodes have joined.

    A node that joins and then disconnects may come back within the time allowed for silence.

    Raises:
        LaunchError: too few nodes have joined in time, or too few can take part.
    """
    waiting = Waiting(placement, head, say)
    waiting.wait(listener)
    over = waiting.over
    if over is None and waiting.count < placement.least:
        hint = "did safe-launch start on every node, and can they reach node 0?"
        over = Refusal(ExitCode.RETRY_ELSEWHERE, waiting.text(), hint)
    if over is not None:
        broadcast((connection for _, connection in waiting.nodes), over)
        if waiting.over is not None:
            informed = waiting.refused | {seat(node) for node, _ in waiting.nodes}
            dismiss(listener, placement, over, informed, say)
        raise LaunchError(over.problem, over.hint, code=ExitCode(over.code))
    joins = (head, *(node for node, _ in waiting.nodes))
    order = in_rank_order(joins)
    connections = tuple(waiting.nodes[place - 1][1] for place in order[1:])
    return Joined(tuple(joins[place] for place in order), connections, listener)


def listener_of_head(placement: Placement, trust: Trust) -> Listener | None:
    """Listens on the job's port; None if this isn't node 0.

    Of several launchers without ranks on one host, the first to listen is node 0, as with c10d
    (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, _create_tcp_store).

    Raises:
        LaunchError: the port is taken, or this process may not open enough files.
    """
    if not placement.is_head:
        return None
    needed = placement.nodes + STRANGERS + OTHERS
    if (most := host.make_room(needed)) < needed:
        nodes = count_of(placement.nodes, "node needs", "nodes need")
        problem = f"{nodes} {needed:,} open files on node 0, of which {most:,} "
        raise LaunchError(f"{problem}are allowed", f"ulimit -Hn {needed}")
    try:
        return listening(placement.port, trust)
    except OSError as error:
        if placement.may_join and error.errno == errno.EADDRINUSE:
            return None
        problem = f"node 0 can't listen on port {placement.port}: {reason_of(error)}"
        raise LaunchError(problem, ANOTHER_PORT) from error


def join(
    placement: Placement, trust: Trust, node: Join, say: Callable[[str], None]
) -> tuple[Connection, RunStarted]:
    """Another node's part: finds node 0, joins, and waits until all nodes have joined.

    A connection that is accepted and closed without a message may be a proxy before a node 0 that
    isn't up yet, or a dead node 0. It is retried within the time allowed for silence.

    Raises:
        LaunchError: node 0 can't be found in time, refuses this node, or ends.
    """
    where = f"{placement.address}:{placement.port}"
    refused_since: float | None = None
    while True:
        connection = find_node_0(placement, trust, say)
        connection.send(node)
        try:
            started = _start_of_run(connection, placement, where, say)
        except LaunchError:
            connection.close()
            raise
        if started is not None:
            return connection, started
        connection.close()
        refused_since = refused_since or time.monotonic()
        if time.monotonic() - refused_since >= placement.times.silence:
            problem = f"{where} accepts connections and closes them without an answer"
            hint = "has node 0 ended, or is something else at that port?"
            raise LaunchError(problem, hint, code=ExitCode.RETRY_ELSEWHERE)
        time.sleep(PAUSES[-1])


def _start_of_run(
    connection: Connection, placement: Placement, where: str, say: Callable[[str], None]
) -> RunStarted | None:
    """Node 0's message that all nodes have joined; None if it closed without any message.

    Raises:
        LaunchError: node 0 refuses this node, ends, or doesn't answer.
    """
    times = placement.times
    # Another process of this host has the port: it is node 0 already, or never will be.
    starting = 0.0 if placement.may_join else times.join + times.last_call
    patience = starting + times.silence
    deadline = time.monotonic() + patience
    is_admitted = False
    while (message := next_message(connection, deadline - time.monotonic())) is not None:
        match message:
            case Refusal(code=code, problem=problem, hint=hint):
                raise LaunchError(problem, hint, code=ExitCode(code))
            case Accepted(here=here, nodes=nodes):
                is_admitted = True
                deadline = time.monotonic() + times.join + times.last_call + times.silence
                if here < nodes:
                    until = clock(deadline - time.monotonic())
                    here_text = f"{here} of {count_of(nodes, 'node')} are here"
                    say(f"found node 0 at {where}; {here_text}; gives up at {until}")
            case RunStarted() as started:
                return started
    if connection.fault is None:
        problem = f"{where} accepts connections, but hasn't answered within {patience:g} s"
        hint = ANOTHER_PORT if placement.may_join else "is it safe-launch's port?"
        raise LaunchError(problem, hint, code=ExitCode.RETRY_ELSEWHERE)
    if connection.is_foreign:
        problem = f"{where} answers, but isn't node 0 of this job: {connection.fault}"
        code = ExitCode.RETRY_ELSEWHERE if connection.is_proven else ExitCode.USAGE
        raise LaunchError(problem, code=code)
    if not is_admitted:
        return None
    problem = f"node 0 ({where}) ended before all nodes had joined: {connection.fault}"
    raise LaunchError(problem, code=ExitCode.RETRY_ELSEWHERE)


def check_endpoint(
    placement: Placement, trust: Trust, head: Join, say: Callable[[str], None]
) -> None:
    """Looks for another node 0 if this one's address isn't its host's.

    It may still lead here, as a Kubernetes Service or a forwarded port does. So only another node 0
    that answers there refuses this one.

    Raises:
        LaunchError: another launcher is node 0.
    """
    where = f"{placement.address}:{placement.port}"
    if not placement.is_head or placement.may_join or owns(placement.address):
        return
    times = replace(placement.times, join=PATIENCE, last_call=0.0)
    try:
        join(replace(placement, times=times), trust, head, lambda _line: None)
    except LaunchError as error:
        if error.code == ExitCode.USAGE:
            raise
    say(
        f"{head.host} is node 0, but the others look for it at {where}, which isn't an address of "
        "this host: is its --node-rank right, and --master-addr (or --rdzv-endpoint)?"
    )


def find_node_0(placement: Placement, trust: Trust, say: Callable[[str], None]) -> Connection:
    """A connection to node 0, which may not run yet, or whose name may not resolve yet.

    Raises:
        LaunchError: it isn't found in time, or this node has no credential to offer.
    """
    where = f"{placement.address}:{placement.port}"
    began = time.monotonic()
    deadline = began + placement.times.join
    is_reported = False
    tries = 0
    while True:
        try:
            opened = socket.create_connection((placement.address, placement.port), timeout=5)
            keep_alive(opened, placement.times.silence)
            return Connection(opened, placement.address, FromHead).begin(joining(trust))
        except (OSError, UnicodeError) as error:
            reason = _reason(error)
        now = time.monotonic()
        if now >= deadline:
            problem = f"node 0 wasn't found at {where} within {placement.times.join:g} s: {reason}"
            hint = "is safe-launch running there, and is the name and port right on every node?"
            raise LaunchError(problem, hint, code=ExitCode.RETRY_ELSEWHERE)
        if not is_reported and now - began > PATIENCE:
            say(f"looking for node 0 at {where}: {reason}; gives up at {clock(deadline - now)}")
            is_reported = True
        time.sleep(min(PAUSES[min(tries, len(PAUSES) - 1)], max(0.0, deadline - now)))
        tries += 1


def _reason(error: OSError | UnicodeError) -> str:
    """Why a connection failed, as a clause."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name isn't known (yet)"
    if isinstance(error, TimeoutError):
        return "no answer"
    if error.errno == errno.ECONNREFUSED:
        return "nothing listens there (yet)"
    return reason_of(error)
