"""What the supervisor hears of workers that are quicker than it."""

from __future__ import annotations

import selectors
from collections.abc import Iterator

import pytest
from safe_launch.evidence.worker_channel import Receiver, Sender
from safe_launch.workers import supervisor
from safe_launch.workers.attempt_state import Scene, failed_ranks

WATCH = supervisor.Watch(lambda _observed, _model: True, print, print)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """The launcher's end of the channel."""
    receiver = Receiver()
    yield receiver
    receiver.close()


def test_the_last_words_of_quick_workers_are_heard_at_once(receiver: Receiver) -> None:
    """All had connected, spoken and gone before the supervisor looked for the first time."""
    scene = Scene({0: 10, 1: 11, 2: 12}, set())
    for rank in (0, 1):
        Sender(receiver.name, rank).send("finished", {})
    silent = Sender(receiver.name, 2)
    with selectors.DefaultSelector() as selector:
        supervisor._welcome(selector, receiver, scene, WATCH)
        assert scene.finished == {0, 1}
        silent.send("finished", {})
        (ready,) = [key for key, _ in selector.select(0)]
        supervisor._read(selector, ready.fileobj, receiver, scene, WATCH)  # type: ignore[arg-type]
    scene.exits = {0: (-6, 1.0), 1: (-6, 1.0), 2: (-6, 1.0)}
    assert scene.finished == {0, 1, 2}
    assert not failed_ranks(scene)


def test_the_first_model_that_is_told_stays(receiver: Receiver) -> None:
    """Every rank describes the same model, and what is said of it once is enough."""
    scene = Scene({0: 10, 1: 11}, set())
    first = Sender(receiver.name, 0)
    first.send("model", {"shape": {"config": {"layers": 1}, "weights": []}})
    first.send("model", {"shape": {"config": {"layers": 2}, "weights": []}})
    with selectors.DefaultSelector() as selector:
        supervisor._welcome(selector, receiver, scene, WATCH)
    assert scene.model == {"config": {"layers": 1}, "weights": []}
