"""Agreement and messages of nodes without workers: values, sockets, threads."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from msgspec import structs
from safe_launch.core.choices import Framework
from safe_launch.core.errors import ExitCode, LaunchError, Refused
from safe_launch.core.hardware import Hardware
from safe_launch.core.placement import JoinTimes, Placement
from safe_launch.core.request import LaunchRequest, Limits
from safe_launch.core.settings import Fact, Setting
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.nodes.admission import clock, named, too_late
from safe_launch.nodes.compatibility import (
    common_hardware,
    differences,
    in_rank_order,
    never_changed_by,
    refusal,
)
from safe_launch.nodes.connection import Connection, decoded, deliver, encoded
from safe_launch.nodes.farewell import on_failure
from safe_launch.nodes.joining import Accepted, Join, Refusal, RunStarted, Unable
from safe_launch.nodes.listener import Listener, arrivals
from safe_launch.nodes.messages import Ended, Failing, Message, RunEnded, Stop
from safe_launch.nodes.peers import IN_FULL, SHORT, Peers, abbreviated
from safe_launch.nodes.rendezvous import Joined, gather, join, listener_of_head
from safe_launch.nodes.secret import Trust
from safe_launch.planning.fewer_nodes import on_survivors
from safe_launch.planning.plan import NoPlan
from safe_launch.planning.planner import planned
from safe_launch.report.explain_plan import barred_text
from support.links import (
    EVERY,
    GPU,
    HARDWARE,
    HEAD,
    LONG,
    MESSAGES,
    ORDER,
    RECORD,
    RUN,
    VERSIONS,
    call,
    end_of_link,
    framed,
    heard,
    linked,
    proven,
)
from support.ports import free_port
from support.stacks import CURRENT, ROOT
from support.worlds import REQUEST, ZERO2, rule, world

TIMES = JoinTimes(join=LONG)


def hello(rank: int | None = None, host: str = "other", **changes: object) -> Join:
    """Another node's hello."""
    return structs.replace(HEAD, rank=rank, host=host, **changes)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (hello(1), None),
        (hello(None), None),
        (hello(3), None),
        (
            hello(1, job="last week's"),
            "other is of another job: its run id \"last week's\" isn't node 0's",
        ),
        (hello(4), "says that it is node 4, and node 0 expects nodes 1 to 3"),
        (hello(0), "says that it is node 0"),
        (hello(1, versions={**VERSIONS, "torch": "2.13.1+cu130"}), None),
        (hello(1, versions={**VERSIONS, "torch": "2.12.0"}), "torch is 2.12.0 on other and 2.13.0"),
        (hello(1, versions={**VERSIONS, "safe-launch": "0.1.1"}), "safe-launch is 0.1.1 on other"),
        (hello(1, versions={"safe-launch": "0.1.0"}), "is absent on other"),
        (hello(1, versions={**VERSIONS, "transformers": "4.0"}), None),
        (
            hello(1, hardware=replace(HARDWARE, accelerator=GPU)),
            "other trains on cuda and head on cpu",
        ),
    ],
)
def test_who_is_refused(other: Join, problem: str | None) -> None:
    """Another job, an invalid rank, incompatible versions, another kind of device."""
    refused = refusal(other, HEAD, 4)
    if problem is None:
        assert refused is None
    else:
        assert refused is not None
        assert refused.code == ExitCode.USAGE
        assert problem in refused.problem
        assert refused.hint


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([hello(1), hello(2)], []),
        ([hello(1, script="")], ["the script on other isn't the one on head"]),
        ([hello(1, arguments="x")], ["the script's arguments on other aren't those on head"]),
        ([hello(1, nproc=4)], ["the number of workers differs between the nodes: 2 on head; 4 on"]),
        (
            [hello(1, versions={**VERSIONS, "torch": "2.13.1"})],
            ["torch differs between the nodes: 2.13.0+cpu on head; 2.13.1 on other"],
        ),
        (
            [hello(rank, f"n{rank}", versions={**VERSIONS, "peft": "1"}) for rank in range(1, 7)],
            ["peft differs between the nodes: absent on head; 1 on n1, n2, n3 and 3 more"],
        ),
    ],
)
def test_what_differs_is_told(others: Sequence[Join], expected: list[str]) -> None:
    """One note for each difference, with some of the hosts."""
    notes = differences([HEAD, *others])
    assert len(notes) == len(expected)
    for note, beginning in zip(notes, expected, strict=True):
        assert note.startswith(beginning)


def test_another_number_of_nodes_is_told() -> None:
    """Node 0's --nnodes wins; the node with another is named."""
    head = structs.replace(HEAD, nnodes="2")
    assert not differences([head, hello(nnodes="2")])
    (note,) = differences([head, hello(nnodes="1:3")])
    assert note == "--nnodes differs between the nodes: 2 on head; 1:3 on other; node 0's holds"


def test_what_any_node_never_changes_stays() -> None:
    """The plan obeys every node's restrictions and names the node."""
    stage, micro = Setting.ZERO_STAGE, Setting.MICRO_BATCH
    others = [hello(1, "beta", never_changed=(stage, micro)), hello(2, "gamma")]
    limits = never_changed_by(
        Limits(strict=True, never_changed=((stage, "--never-change"),)), others
    )
    assert limits.strict
    assert limits.never_changed == ((stage, "--never-change"), (micro, "--never-change on beta"))
    limits = never_changed_by(Limits(), others)
    refused = planned(
        replace(REQUEST, limits=limits),
        world({**ZERO2, Fact.BLOCK_RUNS_TWICE: True}),
        HARDWARE,
        [rule(zero_stage=2)],
    )
    assert isinstance(refused, NoPlan)
    assert refused.barred is not None
    assert "zero_stage is never changed (--never-change on beta)" in barred_text(
        refused, refused.barred
    )


def test_one_node_stands_for_all() -> None:
    """It has the minimum of all nodes; different devices get a note."""
    small = replace(GPU, name="a100-40gb", memory=40 << 30, link=2e11)
    nodes = [
        hello(0, hardware=Hardware(GPU, 8, 64, 512 << 30, in_use=1 << 30, notes=("old driver",))),
        hello(1, hardware=Hardware(small, 4, 96, 256 << 30, in_use=3 << 30)),
    ]
    least = common_hardware(nodes)
    assert (least.accelerator.name, least.accelerator.memory) == ("a100-40gb", 40 << 30)
    assert least.accelerator.link == 2e11
    assert (least.accelerators, least.cores, least.host_memory) == (4, 64, 256 << 30)
    assert least.in_use == 3 << 30
    expected = "the nodes' devices differ (a100-80gb, a100-40gb): planned for the least"
    assert least.notes == ("old driver", expected)
    assert common_hardware([HEAD, hello(1)]) == HARDWARE


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([(2, "a"), (1, "b")], ["head", "b", "a"]),
        ([(None, "n10"), (None, "n9"), (None, "n1")], ["head", "n1", "n9", "n10"]),
        ([(None, "b"), (1, "c"), (None, "a")], ["head", "c", "a", "b"]),
        ([(None, "x-2-10"), (None, "x-2-9"), (None, "2")], ["head", "2", "x-2-9", "x-2-10"]),
    ],
)
def test_the_order_of_nodes(others: list[tuple[int | None, str]], expected: list[str]) -> None:
    """Node 0, then stated ranks, then names in natural order."""
    joins = [HEAD, *(hello(rank, host) for rank, host in others)]
    assert [joins[place].host for place in in_rank_order(joins)] == expected


class Nodes:
    """A node 0 that gathers in a thread, and nodes that join it.

    Attributes:
        placement: node 0's placement.
        said: messages to the user.
    """

    def __init__(
        self, pool: ThreadPoolExecutor, nodes: int, least: int, times: JoinTimes, trust: Trust
    ) -> None:
        self.placement = Placement(
            nodes, least, 0, "127.0.0.1", free_port(), job="job", times=times
        )
        self.said: list[str] = []
        self.pool, self.trust = pool, trust
        self.coming: list[Future[tuple[Connection, RunStarted]]] = []
        listener = listener_of_head(self.placement, trust)
        assert listener is not None
        self.joined: Future[Joined] = pool.submit(
            gather, self.placement, HEAD, listener, self.said.append
        )

    def come(self, own: Join, trust: Trust | None = None) -> Future[tuple[Connection, RunStarted]]:
        """Another node joins."""
        coming = (replace(self.placement, rank=own.rank), trust or self.trust, own)
        self.coming.append(self.pool.submit(join, *coming, lambda _line: None))
        return self.coming[-1]

    def connect(self) -> Connection:
        """A new connection without any message."""
        limit = time.monotonic() + LONG
        while True:
            try:
                return call(self.placement.port, self.trust)
            except ConnectionRefusedError:
                assert time.monotonic() < limit
                time.sleep(0.01)


@contextmanager
def nodes(
    count: int, least: int | None = None, times: JoinTimes = TIMES, trust: Trust | None = None
) -> Iterator[Nodes]:
    """A node 0 that waits for the others."""
    with ThreadPoolExecutor(128) as pool:
        job = Nodes(pool, count, least or count, times, trust or Trust())
        yield job
    for node in job.coming:
        if node.exception() is None:
            node.result()[0].close()


def welcomed(joined: Joined) -> None:
    """Node 0 announces that all have joined."""
    for rank, link in enumerate(joined.connections, start=1):
        link.send(RunStarted(RUN, rank, len(joined.connections) + 1))


def end(joined: Joined) -> None:
    """Closes node 0's resources."""
    for link in joined.connections:
        link.close()
    joined.listener.close()


@pytest.mark.parametrize("ranks", [(3, 1, 2), (None, None, None)], ids=["said", "unsaid"])
def test_nodes_come_together(ranks: Sequence[int | None]) -> None:
    """Nodes get their stated ranks, or ranks by name."""
    names = {1: "b", 2: "c", 3: "a"} if ranks[0] else {1: "n2", 2: "n9", 3: "n10"}
    hosts = [names[rank] for rank in (3, 1, 2)]
    with nodes(4) as job:
        coming = [job.come(hello(rank, host)) for rank, host in zip(ranks, hosts, strict=True)]
        joined = job.joined.result(LONG)
        assert [one.host for one in joined.joins] == ["head", *names.values()]
        assert [link.peer for link in joined.connections] == list(names.values())
        welcomed(joined)
        told = [one.result(LONG)[1].rank for one in coming]
        assert told == [3, 1, 2]
        end(joined)


def test_those_who_dont_belong_are_refused() -> None:
    """They get the reason; the other nodes keep waiting and meet."""
    with nodes(3) as job:
        first = job.connect()
        first.send(hello(1, "one"))
        proven(first)
        for stranger, problem in (
            (hello(2, "stranger", job="another"), "is of another job"),
            (hello(7, "stranger"), "says that it is node 7"),
            (hello(1, "stranger"), "says that it is node 1, as one has said"),
        ):
            with pytest.raises(LaunchError, match=problem) as caught:
                job.come(stranger).result(LONG)
            assert caught.value.code == ExitCode.USAGE
        second = job.come(hello(2, "two"))
        joined = job.joined.result(LONG)
        assert len([line for line in job.said if line.startswith("refused a node: ")]) == 3
        welcomed(joined)
        assert heard(first) == Accepted(2, 3)
        assert heard(first) == RunStarted(RUN, 1, 3)
        assert second.result(LONG)[1].rank == 2
        first.close()
        end(joined)


OTHER_DEEPSPEED = {"versions": {**VERSIONS, "deepspeed": "0.16.9"}}
NO_TORCH = Unable("job", 2, "late", ExitCode.USAGE, "torch isn't installed", "install it")


def test_a_node_that_cant_take_part_ends_the_job_for_all() -> None:
    """Its place stays empty; present and later nodes are notified at once."""
    with nodes(4) as job:
        first = job.come(hello(1, "first"))
        with pytest.raises(LaunchError, match=r"deepspeed is 0\.16\.9 on broken") as own:
            job.come(hello(3, "broken", **OTHER_DEEPSPEED)).result(LONG)
        later = job.come(hello(2, "later"))
        for told in (first, later, job.joined):
            with pytest.raises(LaunchError, match=r"deepspeed is 0\.16\.9 on broken") as caught:
                told.result(LONG)
            assert caught.value.code == own.value.code == ExitCode.USAGE
            assert caught.value.hint == "install the same on every node"


def test_nodes_without_ranks_are_missed_too() -> None:
    """Node 0 numbers the nodes, but their count is fixed."""
    with nodes(3) as job:
        link = job.connect()
        link.send(structs.replace(NO_TORCH, rank=None, code=ExitCode.NO_PLAN))
        proven(link)
        coming = job.come(hello(None, "other"))
        for told in (coming, job.joined):
            with pytest.raises(LaunchError, match="late can't take part: torch isn't") as caught:
                told.result(LONG)
            assert caught.value.code == ExitCode.NO_PLAN
        link.close()


@pytest.mark.parametrize(
    "stranger",
    [
        structs.replace(NO_TORCH, job="another"),
        structs.replace(NO_TORCH, rank=7),
        structs.replace(NO_TORCH, rank=1),
    ],
    ids=["another job", "another rank", "a double"],
)
def test_strangers_that_cant_take_part_end_nothing(stranger: Unable) -> None:
    """Another job's launcher, a surplus node, and a double of a present node."""
    with nodes(3) as job:
        first = job.connect()
        first.send(hello(1, "one"))
        proven(first)
        link = job.connect()
        link.send(stranger)
        assert isinstance(heard(link), Refusal)
        job.come(hello(2, "two"))
        joined = job.joined.result(LONG)
        welcomed(joined)
        end(joined)
        for each in (first, link):
            each.close()


def test_with_a_range_of_nodes_the_others_go_on() -> None:
    """Until too few are left; a repaired node takes its place again."""
    with nodes(4, 3) as job:
        link = job.connect()
        link.send(NO_TORCH)
        proven(link)
        coming = [job.come(hello(rank, f"n{rank}")) for rank in (1, 2, 3)]
        joined = job.joined.result(LONG)
        assert "refused a node: late can't take part: torch isn't installed; the" in job.said[0]
        welcomed(joined)
        assert [one.result(LONG)[1].rank for one in coming] == [1, 2, 3]
        end(joined)
        link.close()
    with nodes(4, 3) as job:
        links = [job.connect() for _ in range(2)]
        for rank, link in enumerate(links, start=2):
            link.send(structs.replace(NO_TORCH, rank=rank))
        proven(*links)
        with pytest.raises(LaunchError, match="torch isn't installed; no node can start"):
            job.come(hello(1, "n1")).result(LONG)
        assert job.joined.exception(LONG) is not None
        for link in links:
            link.close()


@pytest.mark.parametrize(
    ("node", "code", "problem"),
    [
        (hello(1, "another"), 64, "a run of 3 nodes is under way at this port, and one is its no"),
        (hello(1, "one"), 75, "which one can't join any more"),
        (hello(None, "another"), 64, "a run of 3 nodes is under way at this port"),
        (hello(5, "another"), 64, "a run of 3 nodes is under way at this port"),
        (hello(1, "another", job="theirs"), 64, "another is of another job"),
        (structs.replace(NO_TORCH, rank=None), 64, "too late"),
    ],
)
def test_who_comes_late(node: Join | Unable, code: int, problem: str) -> None:
    """A second launcher or another job's fails for good; a lost node's may be retried."""
    with linked() as (near, one), linked() as (_, two):
        one.peer, two.peer = "one", "two"
        peers = Peers({1: one, 2: two}, job="job")
        refused = too_late(node, peers)
        assert (refused.code, problem in refused.problem) == (code, True), refused
        near.close()
        while not peers.lost:
            peers.receive(1)
        if code == 64 and node.job == "job":
            assert too_late(node, peers).code == ExitCode.RETRY_ELSEWHERE


def test_the_missing_in_words() -> None:
    """Ranges of ranks, and the first known hosts."""
    hosts = tuple(f"n{rank}" for rank in range(16))
    assert named([2], hosts) == "rank 2 (n2)"
    assert named([2], ()) == "rank 2"
    assert named([1, 2, 4], hosts) == "ranks 1, 2, 4 (n1, n2, n4)"
    assert named([1, 4, 5, 6, 9], hosts) == "ranks 1, 4 to 6, 9 (n1, n4, n5 and 2 more)"
    assert re.fullmatch(r"\d\d:\d\d", clock(600))
    assert re.fullmatch(r"\d\d:\d\d:\d\d", clock(10))


@pytest.mark.parametrize("may_join", [False, True], ids=["by rank", "by address"])
def test_a_launcher_tells_of_its_own_failure(may_join: bool) -> None:
    """It reports as a joining node, even if it could have been node 0."""
    said: list[str] = []
    with nodes(2) as job:
        placement = replace(job.placement, rank=0 if may_join else 1, may_join=may_join)
        with pytest.raises(LaunchError), on_failure(placement, job.trust, said.append):
            raise LaunchError("no such thing", "make one", code=ExitCode.NO_PLAN)
        with pytest.raises(LaunchError, match="can't take part: no such thing") as caught:
            job.joined.result(LONG)
        assert (caught.value.code, caught.value.hint) == (ExitCode.NO_PLAN, "make one")
    assert said[0].startswith("this node can't take part: no such thing; informing node 0 (127.")


def test_node_0_tells_of_its_own_failure() -> None:
    """Every joining node gets it, internal errors included, which are still raised."""
    placement = Placement(2, 2, 0, "127.0.0.1", free_port(), times=TIMES)
    said: list[str] = []

    def failing() -> None:
        with on_failure(placement, Trust(), said.append):
            raise ZeroDivisionError("by zero")

    with ThreadPoolExecutor(1) as pool:
        head = pool.submit(failing)
        own = hello(1, job="")
        with pytest.raises(LaunchError, match=r"node 0 .* can't take part: .*by zero") as caught:
            join(replace(placement, rank=1), Trust(), own, lambda _line: None)
        assert caught.value.code == ExitCode.INTERNAL
        with pytest.raises(ZeroDivisionError):
            head.result(LONG)
    assert "can't take part: safe-launch itself failed: ZeroDivisionError: by zero" in said[0]


def test_who_ends_the_connection_without_a_word_is_asked_again() -> None:
    """A proxy does so until node 0 is up behind it."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, ThreadPoolExecutor() as threads:
        port = proxy.getsockname()[1]
        placement = Placement(2, 2, 1, "127.0.0.1", port, times=replace(TIMES, silence=LONG))
        coming = threads.submit(join, placement, Trust(), hello(1), print)
        for _ in range(2):
            proxy.accept()[0].close()
        link = end_of_link(proxy.accept()[0], "other")
        assert isinstance(heard(link), Join)
        link.send(Accepted(2, 2), RunStarted(RUN, 1, 2))
        own, started = coming.result(LONG)
        assert started == RunStarted(RUN, 1, 2)
        own.close()
        link.close()


def test_nobody_is_asked_again_for_ever() -> None:
    """If node 0 has died, its address ends every connection."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, ThreadPoolExecutor() as threads:
        port = proxy.getsockname()[1]
        placement = Placement(2, 2, 1, "127.0.0.1", port, times=replace(TIMES, silence=0.5))
        coming = threads.submit(join, placement, Trust(), hello(1), print)
        while not coming.done():
            proxy.settimeout(1.0)
            with suppress(TimeoutError):
                proxy.accept()[0].close()
        with pytest.raises(LaunchError, match="closes them without an answer") as caught:
            coming.result()
        assert caught.value.code == ExitCode.RETRY_ELSEWHERE


def test_no_more_than_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nodes without ranks only the requested number is admitted.

    Connections without a proof by then are closed; they return too late.
    """
    all_have_come = threading.Event()

    def all_at_once(listener: Listener, silence: float) -> list[Connection]:
        assert all_have_come.wait(LONG)
        return arrivals(listener, silence)

    monkeypatch.setattr("safe_launch.nodes.listener.arrivals", all_at_once)
    with nodes(3) as job:
        links = [job.connect() for _ in range(8)]
        for place, link in enumerate(links):
            link.send(hello(None, f"n{place}"))
        all_have_come.set()
        while not job.joined.done():
            for link in links:
                link.waiting += link.receive()
        joined = job.joined.result()
        assert len(joined.joins) == 3
        welcomed(joined)
        for link in links:
            while not link.waiting and link.fault is None:
                link.waiting += link.receive()
        said = [link.waiting[0] for link in links if link.waiting]
        assert sum(isinstance(first, Accepted) for first in said) == 2
        assert {type(first) for first in said} <= {Accepted, Refusal}
        end(joined)
        for link in links:
            link.close()


def test_the_last_call() -> None:
    """With enough nodes, node 0 waits a while for more and then starts."""
    with nodes(8, 2, JoinTimes(join=LONG, last_call=1.0)) as job:
        coming = [job.come(hello(None, f"n{place}")) for place in (1, 2)]
        joined = job.joined.result(LONG)
        assert 2 <= len(joined.joins) <= 3
        welcomed(joined)
        end(joined)
        for one in coming:
            one.exception(LONG)


def test_too_few_nodes() -> None:
    """Node 0 times out and names the missing; so does the waiting node."""
    with nodes(3, times=JoinTimes(join=3.0)) as job:
        coming = job.come(hello(2, "two"))
        with pytest.raises(LaunchError, match=r"of 3 nodes have joined; rank 1 never") as caught:
            job.joined.result(LONG)
        assert caught.value.code == ExitCode.RETRY_ELSEWHERE
        with pytest.raises(LaunchError, match="gave up after") as caught:
            coming.result(LONG)
        assert caught.value.code == ExitCode.RETRY_ELSEWHERE


def test_a_node_goes_and_comes_again() -> None:
    """A pod restarts."""
    with nodes(3) as job:
        early = job.connect()
        early.send(hello(1, "pod"))
        proven(early)
        early.close()
        while not job.said:
            time.sleep(0.01)
        assert job.said == ["pod has left again (its launcher has ended); waiting for it"]
        coming = [job.come(hello(1, "pod")), job.come(hello(2, "two"))]
        joined = job.joined.result(LONG)
        welcomed(joined)
        assert [one.result(LONG)[1].rank for one in coming] == [1, 2]
        end(joined)


def test_an_order_that_comes_with_the_welcome() -> None:
    """A slow reader doesn't lose it."""
    with nodes(2) as job:
        coming = job.come(hello(1))
        joined = job.joined.result(LONG)
        joined.connections[0].send(RunStarted(RUN, 1, 2), ORDER, Stop())
        link, _ = coming.result(LONG)
        assert [heard(link), heard(link)] == [ORDER, Stop()]
        end(joined)


GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"\n\n\n",
    b"\x00\xff\xfe\n",
    b'{"type": "Join"}\n',
    b'{"type": "Nobody"}\n',
    b'{"a": 1}\n["Stop"]\n[]\n3\nnull\n',
    b'{"type": "Join", "job": ' + b"[" * 100_000 + b"\n",
    b"half a line",
]


def test_garbage_on_the_port() -> None:
    """Connections with other data are ignored."""
    with nodes(2) as job:
        strangers = [job.connect() for _ in GARBAGE]
        for link, text in zip(strangers, GARBAGE, strict=True):
            link.socket.sendall(text)
        coming = job.come(hello(1))
        joined = job.joined.result(LONG)
        welcomed(joined)
        assert coming.result(LONG)[1] == RunStarted(RUN, 1, 2)
        end(joined)
        for link in strangers:
            link.close()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_messages_arrive_as_they_were(message: Message) -> None:
    """JSON preserves any text."""
    assert decoded(encoded(message), EVERY) == message


@pytest.mark.parametrize("line", [line for text in GARBAGE for line in text.splitlines()])
def test_what_no_launcher_has_written(line: bytes) -> None:
    """Invalid messages are rejected with a reason."""
    with pytest.raises(ValueError, match="none of its messages"):
        decoded(line, EVERY)


def test_an_order_tells_a_node_its_ranks() -> None:
    """Nodes may have different numbers of workers."""
    assert (ORDER.first, ORDER.ranks, ORDER.world) == (4, range(4, 8), 8)


def test_messages_come_in_pieces() -> None:
    """A frame becomes a message once it is complete."""
    with linked() as (near, far):
        frames = framed(*map(encoded, (Stop(15), RunStarted(RUN, 1, 2), Stop())))
        for place in range(0, len(frames), 7):
            near.socket.sendall(frames[place : place + 7])
            far.waiting += far.receive()
        limit = time.monotonic() + LONG
        while len(far.waiting) < 3:
            assert time.monotonic() < limit
            far.waiting += far.receive()
        assert far.waiting == [Stop(15), RunStarted(RUN, 1, 2), Stop()]
        assert far.receive() == []
        assert far.fault is None


def test_a_large_message() -> None:
    """A record of one megabyte arrives whole."""
    large = Failing((replace(RECORD, traceback="x" * (1 << 20)),), 1.0)
    with linked() as (near, far):
        sending = threading.Thread(target=near.send, args=(large,))
        sending.start()
        assert heard(far) == large
        sending.join()


def test_a_message_without_an_end() -> None:
    """It is rejected by its length, before it is stored."""
    with linked() as (near, far):
        near.socket.sendall((1 << 25).to_bytes(4))
        with pytest.raises(AssertionError, match="a message of 33,554,432 bytes, and 16,777,216"):
            heard(far)
        assert far.is_foreign


def test_how_a_connection_ends() -> None:
    """The end is reported in words; earlier data is kept; later senders get an error."""
    with linked() as (near, far):
        near.send(RunEnded(0, "done"))
        near.close()
        assert heard(far) == RunEnded(0, "done")
        limit = time.monotonic() + LONG
        while far.fault is None:
            assert time.monotonic() < limit
            far.receive()
        assert far.fault == "its launcher has ended"
        assert near.fault == "it was given up"
        near.send(Stop())
        far.send(Stop())


@pytest.mark.parametrize("shift", [1e6, -1e6, 0.0])
def test_times_of_another_clock(shift: float) -> None:
    """Hosts' monotonic clocks differ: records use node 0's."""
    with linked() as (near, far):
        peers = Peers({1: far})
        now = time.monotonic()
        record = replace(RECORD, at=now + shift - 2.0)
        near.send(Failing((record,), now + shift))
        told: list[Message] = []
        limit = time.monotonic() + LONG
        while not told:
            assert time.monotonic() < limit
            told = peers.receive(1)
        (arrived,) = peers.failing[1]
        assert now - 2.0 <= arrived.at + 0.001
        assert arrived.at <= time.monotonic() - 2.0 + 0.001
        assert replace(arrived, at=record.at, host="") == record
        assert arrived.host == "near"
        assert peers.has_trouble


def test_how_other_nodes_end() -> None:
    """Ended and lost nodes aren't waited for; lost ones get no further orders."""
    with linked() as (one, head_of_one), linked() as (two, head_of_two):
        peers = Peers({1: head_of_one, 2: head_of_two})
        assert peers.is_head
        assert peers.awaited() == {1, 2}
        one.send(Ended(is_success=True, now=1.0))
        two.close()
        limit = time.monotonic() + LONG
        while peers.awaited():
            assert time.monotonic() < limit
            for rank in peers.awaited():
                peers.receive(rank)
        assert peers.ended.keys() == {1}
        assert peers.lost[2][1] == "node 2 (near) is lost: its launcher has ended"
        assert peers.has_trouble
        assert list(peers.survivors().connections.values()) == [head_of_one]
        assert not Peers({0: head_of_one}).is_head


def test_many_failures_are_passed_on_lean() -> None:
    """The first is complete, the others short: every rank has a collective's error."""
    long = replace(RECORD, message="x" * 10_000)
    records = tuple(replace(long, rank=rank) for rank in range(8))
    told = abbreviated(records)
    assert told[:IN_FULL] == records[:IN_FULL]
    assert [one.rank for one in told] == list(range(8))
    for one in told[IN_FULL:]:
        assert len(one.message) == SHORT
        assert one.frames == RECORD.frames[-1:]
        assert one.traceback == ""
        assert one.log_tail == RECORD.log_tail[-20:]
        assert one.exception == RECORD.exception
    whole, less = (len(encoded(Failing(one, 0.0))) for one in (records, told))
    assert less < whole / 2


def training(framework: Framework, micro_batch: int, accumulation: int) -> Workload:
    """A workload with a known batch."""
    batch = {Setting.MICRO_BATCH: micro_batch, Setting.ACCUMULATION: accumulation}
    return Workload(
        framework, {name: Known(value, Origin.FLAG, "test") for name, value in batch.items()}
    )


TRAINER = training(Framework.TRANSFORMERS, 2, 3)


@pytest.mark.parametrize(
    ("least", "workers", "lost", "workload", "expected"),
    [
        (2, (2, 2, 2), {1}, TRAINER, (2, 2)),
        (1, (4, 2, 2), {1, 2}, TRAINER, (4,)),
        (3, (2, 2, 2), {1}, TRAINER, "2 of 3 nodes are left, and --nnodes asks for 3"),
        (2, (2, 2, 2), {1, 2}, TRAINER, "1 of 3 nodes are left, and --nnodes asks for at least 2"),
        (2, (2, 2, 2), {2}, Workload(), "the script's batch isn't known"),
        (2, (2, 2, 2), {2}, training(Framework.NONE, 2, 1), "a global batch of 12 can't be kept"),
        (
            2,
            (8, 8, 6),
            {1},
            training(Framework.TRANSFORMERS, 1, 1),
            "a global batch of 22 can't be spread evenly over 14 workers",
        ),
    ],
)
def test_what_is_left_of_a_launch(
    least: int,
    workers: tuple[int, ...],
    lost: set[int],
    workload: Workload,
    expected: tuple[int, ...] | str,
) -> None:
    """The same global batch on fewer workers, or the reason why not."""
    placement = Placement(nodes=3, least=least, rank=0, address="head")
    request = LaunchRequest("t.py", False, (), 2, "test", placement=placement, workers=workers)
    found = on_survivors(request, workload, lost)
    if isinstance(expected, str):
        assert isinstance(found, Refused)
        assert expected in found.sentence
    else:
        assert isinstance(found, LaunchRequest)
        assert found.nodes == expected
        assert found.whole_world == sum(workers)


@pytest.mark.parametrize("count", [2, 16, 64])
def test_messages_are_linear_in_nodes(count: int) -> None:
    """Each other node exchanges ten messages, whatever the number of nodes."""
    with nodes(count) as job:
        coming = [job.come(hello(rank, f"n{rank}")) for rank in range(1, count)]
        joined = job.joined.result(LONG)
        welcomed(joined)
        links = [one.result(LONG)[0] for one in coming]
        peers = Peers(dict(enumerate(joined.connections, start=1)))
        peers.send_orders(structs.replace(ORDER, workers=(2,) * count))
        records = [replace(RECORD, rank=2 * node) for node in range(1, count)]
        links[-1].send(Failing((records[-1],), 1.0))
        told = 0
        while not peers.failing:
            told += len(peers.receive(count - 1))
        peers.send(Stop())
        for link, record in zip(links, records, strict=True):
            link.send(Ended(is_success=False, records=(record,), now=1.0))
        while peers.awaited():
            told += sum(len(peers.receive(rank)) for rank in peers.awaited())
        peers.send_orders(structs.replace(ORDER, workers=(2,) * count, attempt=2))
        kinds = [[type(heard(link)).__name__ for _ in range(3)] for link in links]
        assert kinds == [["Order", "Stop", "Order"]] * (count - 1)
        assert told == count  # an end from each other node, and the failure
        assert [link.receive() for link in (*links, *joined.connections)] == [[]] * (2 * count - 2)
        end(joined)


def test_node_0_makes_room_for_its_connections() -> None:
    """The soft limit is raised as needed; a low hard limit gets a note."""
    program = (
        "import resource; from safe_launch.machine import host\n"
        "for needed in (200, 1000, 10_000):\n"
        "    print(host.make_room(needed), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    limited = ("prlimit", "--nofile=256:4096", sys.executable, "-c", program)
    done = subprocess.run(limited, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["200 256 4096", "1000 1000 4096", "4096 4096 4096"]


def test_more_nodes_than_open_files() -> None:
    """The limit is reported at the start with the required number."""
    nodes = ("--nnodes=10000", "--node-rank=0", "--master-addr=127.0.0.1", "--nproc=1")
    command = (CURRENT.bin / "safe-launch", *nodes, ROOT / "tests" / "programs" / "prints.py")
    done = subprocess.run(
        ["prlimit", "--nofile=256:4096", *map(str, command)],
        env=CURRENT.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.USAGE
    assert (
        "10,000 nodes need 10,320 open files on node 0, of which 4,096 are allowed" in done.stderr
    )


def test_what_was_sent_last_is_delivered() -> None:
    """Node 0 closes only after delivery; a lost node isn't waited for."""
    with linked() as (near, far):
        assert not near.has_outstanding()
        with suppress(BlockingIOError):
            while True:
                near.socket.send(bytes(1 << 20), socket.MSG_DONTWAIT)
        assert near.has_outstanding()
        deliver([near], 0.1)
        assert near.has_outstanding()
        far.socket.settimeout(0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(deliver, [near], LONG)
            while not waiting.done():
                with suppress(BlockingIOError):
                    far.socket.recv(1 << 20)
            waiting.result()
        assert not near.has_outstanding()
        near.socket.send(b"x" * 1000)
        far.socket.close()
        deliver([near], LONG)
