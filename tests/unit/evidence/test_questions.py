"""A worker's question to its launcher is answered or abandoned after a timeout, for good."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.evidence.worker_channel import Sender
from safe_launch.evidence.worker_messages import (
    Answer,
    Ask,
    Boundary,
    WentOn,
    encoded,
    encoded_answer,
)
from safe_launch.evidence.worker_receiver import Envelope, Receiver, decoded
from safe_launch.system import redaction
from support.waiting import LONG

QUESTION = Ask(
    "k#1",
    Boundary.INITIALIZE,
    ["zero_stage"],
    {"zero_stage": 3, "frozen_parameters": False},
    "transformers",
    {"config": {}, "weights": []},
    "train.py:7",
)


@contextmanager
def channel(folder: Path) -> Iterator[tuple[Sender, Receiver]]:
    """The worker's and the launcher's end."""
    with closing(Receiver(folder)) as receiver:
        sender = Sender(receiver.path, 0)
        receiver.accept()
        yield sender, receiver


def heard(receiver: Receiver, count: int = 1) -> list[Envelope]:
    """The worker's messages, once this many have arrived."""
    found: list[Envelope] = []
    limit = time.monotonic() + LONG
    while len(found) < count:
        assert time.monotonic() < limit
        for connection in list(receiver.partial):
            found += receiver.receive(connection)[0]
        time.sleep(0.001)
    return found


def reply(receiver: Receiver, *answers: Answer) -> None:
    """The launcher's answers, split as a stream may split them."""
    (connection,) = receiver.partial
    text = b"".join(map(encoded_answer, answers))
    for part in (text[:5], text[5:]):
        connection.sendall(part)
        time.sleep(0.01)


def test_a_question_is_answered(tmp_path: Path) -> None:
    """Question and answer arrive intact; an answer with another key is kept for others."""
    answer = Answer("k#1", {"zero_stage": 2}, {"zero_stage": 3})
    with channel(tmp_path) as (sender, receiver):
        found: list[Answer | None] = []
        thread = threading.Thread(target=lambda: found.append(sender.ask(QUESTION, LONG)))
        thread.start()
        assert heard(receiver) == [Envelope(0, QUESTION)]
        reply(receiver, Answer("other#1"), answer)
        thread.join()
    assert found == [answer]


def test_a_secret_does_not_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed key would have no answer; the secret is hidden elsewhere."""
    monkeypatch.setattr(redaction, "_known", frozenset())
    redaction.learn(["initialize", "train.py"])
    question = replace(QUESTION, key="deepspeed.initialize@00#1")
    envelope = decoded(encoded(0, question))
    assert envelope is not None
    assert isinstance(envelope.message, Ask)
    assert envelope.message.key == question.key
    assert envelope.message.boundary is Boundary.INITIALIZE
    assert "train.py" not in envelope.message.frame


def test_an_answer_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    """A truncated answer is skipped; the next counts."""
    with channel(tmp_path) as (sender, receiver):
        found: list[Answer | None] = []
        thread = threading.Thread(target=lambda: found.append(sender.ask(QUESTION, LONG)))
        thread.start()
        heard(receiver)
        (connection,) = receiver.partial
        connection.sendall(b'{"key": "k#\n[]\n' + encoded_answer(Answer("k#1")))
        thread.join()
    assert found == [Answer("k#1")]


def test_threads_get_each_their_own_answer(tmp_path: Path) -> None:
    """Any thread may read, and answers come in any order."""
    keys = [f"k#{number}" for number in range(8)]
    found: dict[str, Answer | None] = {}
    with channel(tmp_path) as (sender, receiver):

        def ask(key: str) -> None:
            found[key] = sender.ask(replace(QUESTION, key=key), LONG)

        threads = [threading.Thread(target=ask, args=(key,)) for key in keys]
        for thread in threads:
            thread.start()
        heard(receiver, len(keys))
        for key in reversed(keys):
            reply(receiver, Answer(key, {"micro_batch": int(key[2:])}))
        for thread in threads:
            thread.join()
    assert {key: answer and answer.overrides for key, answer in found.items()} == {
        key: {"micro_batch": int(key[2:])} for key in keys
    }


def test_after_a_silence_nothing_is_asked_any_more(tmp_path: Path) -> None:
    """The launcher is notified; later answers are ignored."""
    with channel(tmp_path) as (sender, receiver):
        assert sender.ask(QUESTION, 0.01) is None
        assert [envelope.message for envelope in heard(receiver, 2)] == [QUESTION, WentOn("k#1")]
        reply(receiver, Answer("k#1", {"zero_stage": 2}))
        assert sender.ask(replace(QUESTION, key="k#2"), LONG) is None


def test_a_launcher_that_is_gone_ends_the_wait(tmp_path: Path) -> None:
    """The wait ends at once without an error."""
    with channel(tmp_path) as (sender, receiver):
        found: list[Answer | None] = []
        thread = threading.Thread(target=lambda: found.append(sender.ask(QUESTION, 10 * LONG)))
        thread.start()
        heard(receiver)
        receiver.close()
        thread.join(LONG)
        assert found == [None]
    assert Sender(None, 0).ask(QUESTION, LONG) is None


def test_what_a_worker_forks_does_not_ask(tmp_path: Path) -> None:
    """Its parent would get the answers."""
    with channel(tmp_path) as (sender, _receiver):
        child = os.fork()
        if child == 0:
            os._exit(0 if sender.ask(QUESTION, LONG) is None else 1)
        assert os.waitpid(child, 0)[1] == 0
