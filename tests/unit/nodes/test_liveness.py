"""Heartbeats between launchers, with a simulated clock."""

from __future__ import annotations

import pytest
from safe_launch.nodes import liveness
from safe_launch.nodes.liveness import Liveness
from safe_launch.nodes.messages import Ended, Ping, Pong
from safe_launch.nodes.peers import Peers
from safe_launch.progress.board import Phase, RankProgress
from support.links import heard, linked

ROW = RankProgress(2, 77, 1, Phase.TRAINING, 5, 0.1, 9.0, 0.3, (0.1, 0.2), (0.3, 0.3))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(liveness.time, "monotonic", lambda: now[0])
    return now


def test_node_0_asks_and_a_node_answers_with_its_progress(clock: list[float]) -> None:
    """The latest progress of each node is kept."""
    with linked() as (near, far):
        head, node = Peers({1: near}), Peers({0: far})
        ours = Liveness(head, tuple, print)
        theirs = Liveness(node, lambda: (ROW,), print)
        ours.check()
        assert heard(far) == Ping()
        theirs.answer(0)
        answer = heard(near)
        assert answer == Pong((ROW,))
        assert isinstance(answer, Pong)
        ours.answered(1, answer.progress)
        assert head.progress == {1: (ROW,)}
        assert ours.pause() == 10.0
        clock[0] += 4.0
        assert ours.pause() == 6.0


def test_a_launcher_that_gives_no_sign_is_named_once(clock: list[float]) -> None:
    """A stopped process keeps its connection open, but is no longer waited for."""
    said: list[str] = []
    with linked() as (near, _far):
        peers = Peers({1: near})
        ours = Liveness(peers, tuple, said.append)
        ours.answered(1, ())
        for _ in range(8):
            clock[0] += 10.0
            ours.check()
        (line,) = said
        assert line.startswith("node 1 (far) has given no sign of life for 40 s: its launcher is")
        assert not peers.is_overdue()
        peers.deadline = clock[0] + 1e9
        assert peers.is_overdue()
        ours.hear(1)
        assert said[1:] == ["node 1 (far) answers again"]
        assert not peers.is_overdue()


def test_a_node_may_take_long_to_start(clock: list[float]) -> None:
    """A node can't answer while it imports."""
    said: list[str] = []
    with linked() as (near, _far):
        ours = Liveness(Peers({1: near}), tuple, said.append)
        for _ in range(30):
            clock[0] += 10.0
            ours.check()
        assert said == []
        for _ in range(8):
            clock[0] += 10.0
            ours.check()
        assert len(said) == 1


def test_any_message_is_a_sign_of_life(clock: list[float]) -> None:
    """An ended node sends none and isn't missed."""
    said: list[str] = []
    with linked() as (near, _), linked() as (gone, _end):
        peers = Peers({1: near, 2: gone})
        ours = Liveness(peers, tuple, said.append)
        peers.ended[2] = Ended(is_success=True)
        for _ in range(8):
            clock[0] += 10.0
            ours.hear(1)
            ours.check()
        assert said == []


def test_a_launcher_that_was_stopped_itself_accuses_nobody(clock: list[float]) -> None:
    """To it all others were silent during its stop."""
    said: list[str] = []
    with linked() as (near, _far):
        ours = Liveness(Peers({1: near}), tuple, said.append)
        ours.check()
        clock[0] += 500.0
        ours.check()
        assert said == []


def test_a_node_misses_node_0_once_it_has_heard_it(clock: list[float]) -> None:
    """Before its first heartbeat node 0 may still be starting workers."""
    said: list[str] = []
    with linked() as (near, _far):
        node = Liveness(Peers({0: near}), tuple, said.append)
        for _ in range(8):
            clock[0] += 10.0
            node.check()
        assert said == []
        node.answer(0)
        for _ in range(8):
            clock[0] += 10.0
            node.check()
        (line,) = said
        assert line.startswith("node 0 (far) has given no sign of life")


def test_a_single_node_has_nothing_to_wait_for() -> None:
    """The supervisor sleeps until an event."""
    assert Liveness(Peers(), tuple, print).pause() is None
