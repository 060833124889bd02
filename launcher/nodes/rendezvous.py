"""How the nodes of a job come together: node 0 waits for the others, the others look for it."""

from __future__ import annotations

import errno
import hashlib
import platform
import selectors
import socket
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import ExitCode, LaunchError
from ..core.hardware import Hardware
from ..core.placement import Placement
from ..core.request import LaunchRequest
from ..core.version import VERSION
from ..machine import host
from .compatibility import numbered, refusal
from .connection import Link, arrivals, listening, watched
from .messages import Admitted, FromHead, Hello, Message, Refusal, Welcome

PATIENCE = 5.0
"""Seconds after which somebody who waits says for whom."""
STRANGERS = 64
"""Connections, beyond one for each node, on which nobody has said yet who it is."""
OTHERS = 256
"""Descriptors that node 0 holds beside its connections: its workers' pipes, files, libraries."""
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds between two looks for node 0; the last one repeats."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The nodes of a job, as node 0 knows them.

    Attributes:
        hellos: what each node said, in the order of their ranks, node 0's own first.
        links: the connections to the others, in the same order.
        listener: where late nodes knock.
    """

    hellos: tuple[Hello, ...]
    links: tuple[Link, ...]
    listener: socket.socket

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the profiles of all nodes' devices."""
        names = (hello.hardware.accelerator.name for hello in self.hellos)
        return tuple(dict.fromkeys(names))


def hello_of(request: LaunchRequest, hardware: Hardware, versions: dict[str, str]) -> Hello:
    """What this node says of itself."""
    is_file = not request.is_module and not request.is_program
    script = _digest(Path(request.script).read_bytes()) if is_file else ""
    return Hello(
        job=request.placement.job,
        rank=request.placement.rank,
        host=socket.gethostname(),
        nproc=request.nproc,
        hardware=replace(hardware, accelerator=replace(hardware.accelerator, environment={})),
        versions={
            "safe-launch": VERSION,
            "python": platform.python_version(),
            **versions,
        },
        script=script,
        arguments=_digest("\0".join(request.arguments).encode()),
        nnodes=request.placement.range_text,
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def gather(placement: Placement, own: Hello, say: Callable[[str], None]) -> Joined:
    """Node 0's part: waits until the nodes have come.

    A node that says who it is and then goes again may come back for as long as a silent one is
    waited for.

    Raises:
        LaunchError: the port is taken, or too few nodes have come in time.
    """
    needed = placement.nodes + STRANGERS + OTHERS
    if (most := host.make_room(needed)) < needed:
        problem = f"{placement.nodes} nodes need {needed} open files on node 0, of which {most} "
        raise LaunchError(ExitCode.USAGE, f"{problem}are allowed", f"ulimit -Hn {needed}")
    try:
        listener = listening(placement.port)
    except OSError as error:
        problem = f"node 0 can't listen on port {placement.port}: {error.strerror}"
        hint = "give all nodes another --master-port (or --rdzv-endpoint)"
        raise LaunchError(ExitCode.USAGE, problem, hint) from error
    times = placement.times
    began = time.monotonic()
    deadline, speaks = began + times.join, began + PATIENCE
    enough_since: float | None = None
    there: list[tuple[Hello, Link]] = []
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while len(there) + 1 < placement.nodes:
            now = time.monotonic()
            is_enough = len(there) + 1 >= placement.least
            enough_since = (enough_since or now) if is_enough else None
            end = min(deadline, enough_since + times.last_call) if enough_since else deadline
            if now >= end:
                break
            if now >= speaks:
                say(_waiting_text(there, placement))
                speaks = now + 60
            for key, _ in selector.select(max(0.0, min(end, speaks) - now)):
                if key.fileobj is listener:
                    for link in arrivals(listener, times.silence):
                        selector.register(link, selectors.EVENT_READ, link)
                    _shed(selector, {link for _, link in there}, placement.nodes + STRANGERS)
                    continue
                link = key.data
                if link.fileno() < 0:  # it has just been shed
                    continue
                for message in link.receive():
                    _admit(message, link, own, there, placement, say)
                if link.fault is not None:
                    if link.is_foreign:
                        say(f"refused a node: {link.peer}: {link.fault}")
                    selector.unregister(link)
                    link.close()
                    gone = [hello.host for hello, other in there if other is link]
                    there = [pair for pair in there if pair[1] is not link]
                    if gone:
                        say(f"{gone[0]} has gone again ({link.fault}); waiting for it")
                        deadline = min(deadline, time.monotonic() + times.silence)
        admitted = [link for _, link in there]
        for key in list(selector.get_map().values()):
            if key.data is not None and key.data not in admitted:
                key.data.close()
    if len(there) + 1 < placement.least:
        waited = f"{time.monotonic() - began:.0f} s"
        problem = f"{_waiting_text(there, placement)}; gave up after {waited}"
        for _, link in there:
            link.send(Refusal(ExitCode.RETRY_ELSEWHERE, problem))
        hint = "did safe-launch start on every node, and can they reach this one?"
        raise LaunchError(ExitCode.RETRY_ELSEWHERE, problem, hint)
    hellos = (own, *(hello for hello, _ in there))
    order = numbered(hellos)
    return Joined(
        tuple(hellos[place] for place in order),
        tuple(admitted[place - 1] for place in order[1:]),
        listener,
    )


def _shed(selector: selectors.BaseSelector, admitted: Set[Link], most: int) -> None:
    """Ends the oldest connections on which nobody has said who it is, where they are too many."""
    silent = [
        key.data
        for key in selector.get_map().values()
        if key.data is not None and key.data not in admitted
    ]
    for link in silent[: max(0, len(silent) - most)]:
        selector.unregister(link)
        link.close()


def _admit(
    message: Message,
    link: Link,
    own: Hello,
    there: list[tuple[Hello, Link]],
    placement: Placement,
    say: Callable[[str], None],
) -> None:
    """Takes a node in, or tells it why not."""
    if not isinstance(message, Hello) or any(link is other for _, other in there):
        return
    refused = refusal(message, own, placement.nodes)
    taken = [one.host for one, _ in there if message.rank is not None and one.rank == message.rank]
    if taken:
        problem = f"{message.host} says that it is node {message.rank}, as {taken[0]} has said"
        # A pod that replaces one which vanished without a word has its name, and may try again.
        code = ExitCode.RETRY_ELSEWHERE if taken[0] == message.host else ExitCode.USAGE
        refused = Refusal(code, problem, "give every node a --node-rank of its own")
    if len(there) + 1 == placement.nodes:  # it has come at the same moment as the last one
        refused = _too_late(placement.nodes)
    if refused is None:
        link.peer = message.host
        there.append((message, link))
        link.send(Admitted(len(there) + 1, placement.nodes))
    else:
        say(f"refused a node: {refused.problem}")
        link.send(refused)


def _waiting_text(there: Sequence[tuple[Hello, Link]], placement: Placement) -> str:
    """Who is here and who isn't."""
    here = {0, *(hello.rank for hello, _ in there)}
    text = f"{len(there) + 1} of {placement.nodes} nodes have joined"
    missing = sorted(set(range(placement.nodes)) - here)
    if None in here or len(missing) > 20:
        return text
    return f"{text}; missing: {', '.join(map(str, missing))}"


def refuse_late(listener: socket.socket, nodes: int) -> None:
    """Tells nodes that come too late so."""
    for link in arrivals(listener, 1.0):
        link.send(_too_late(nodes))
        link.close()


def _too_late(nodes: int) -> Refusal:
    problem = f"too late: the job already runs on {nodes} node{'s' if nodes > 1 else ''}"
    return Refusal(ExitCode.RETRY_ELSEWHERE, problem, "wait until that run has ended")


def join(placement: Placement, own: Hello, say: Callable[[str], None]) -> tuple[Link, Welcome]:
    """Another node's part: finds node 0, says who it is, and waits until all have come.

    Who takes the connection and ends it without a word may be a proxy in front of a node 0 that
    isn't up yet, or a node 0 that has died: it is asked again for as long as a silent node is
    waited for.

    Raises:
        LaunchError: node 0 can't be found in time, refuses this node, or ends.
    """
    where = f"{placement.address}:{placement.port}"
    refused_since: float | None = None
    while True:
        link = _found(placement, say)
        link.send(own)
        welcome = _welcome(link, placement, where, say)
        if welcome is not None:
            return link, welcome
        link.close()
        refused_since = refused_since or time.monotonic()
        if time.monotonic() - refused_since >= placement.times.silence:
            problem = f"{where} takes connections and ends them without an answer"
            hint = "has node 0 ended, or is something else at that port?"
            raise LaunchError(ExitCode.RETRY_ELSEWHERE, problem, hint)
        time.sleep(PAUSES[-1])


def _welcome(
    link: Link, placement: Placement, where: str, say: Callable[[str], None]
) -> Welcome | None:
    """Node 0's word that all nodes have come; None where the connection ended before any word.

    Raises:
        LaunchError: node 0 refuses this node, ends, or doesn't answer.
    """
    times = placement.times
    patience = times.join + times.last_call + times.silence
    deadline = time.monotonic() + patience
    is_admitted = False
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        while link.fault is None:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                problem = f"{where} takes connections, but hasn't answered within {patience:g} s"
                raise LaunchError(ExitCode.RETRY_ELSEWHERE, problem, "is it safe-launch's port?")
            link.waiting += link.receive()
            while link.waiting:  # the first order may come with the welcome
                match link.waiting.pop(0):
                    case Refusal(code=code, problem=problem, hint=hint):
                        raise LaunchError(ExitCode(code), problem, hint)
                    case Admitted(here=here, nodes=nodes):
                        is_admitted = True
                        if here < nodes:
                            say(f"found node 0 at {where}; {here} of {nodes} nodes are here")
                    case Welcome() as welcome:
                        return welcome
    if link.is_foreign:
        problem = f"what answers at {where} isn't node 0 of this job: {link.fault}"
        raise LaunchError(ExitCode.RETRY_ELSEWHERE, problem, "is it safe-launch's port?")
    if not is_admitted:
        return None
    problem = f"node 0 ({where}) has gone before all nodes had joined: {link.fault}"
    raise LaunchError(ExitCode.RETRY_ELSEWHERE, problem)


def _found(placement: Placement, say: Callable[[str], None]) -> Link:
    """A connection to node 0, which may not be up yet, nor have a name yet."""
    where = f"{placement.address}:{placement.port}"
    began = time.monotonic()
    deadline = began + placement.times.join
    spoken = False
    tries = 0
    while True:
        try:
            connection = socket.create_connection((placement.address, placement.port), timeout=5)
            return watched(connection, placement.address, placement.times.silence, FromHead)
        except (OSError, UnicodeError) as error:
            reason = _reason(error)
        now = time.monotonic()
        if now >= deadline:
            problem = f"node 0 wasn't found at {where} within {placement.times.join:g} s: {reason}"
            hint = "is safe-launch running there, and is the name and port right on every node?"
            raise LaunchError(ExitCode.RETRY_ELSEWHERE, problem, hint)
        if not spoken and now - began > PATIENCE:
            say(f"looking for node 0 at {where}: {reason}")
            spoken = True
        time.sleep(min(PAUSES[min(tries, len(PAUSES) - 1)], max(0.0, deadline - now)))
        tries += 1


def _reason(error: OSError | UnicodeError) -> str:
    """Why a connection failed, in words."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name isn't known (yet)"
    if isinstance(error, TimeoutError):
        return "nobody answers"
    if error.errno == errno.ECONNREFUSED:
        return "nobody listens (yet)"
    return str(error.strerror or error)
