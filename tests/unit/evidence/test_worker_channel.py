"""Messages from workers are read completely or skipped, whatever they contain."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safe_launch.checkpoints.checkpoint import Saves
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.core.plain_json import plain
from safe_launch.core.secret_names import is_secret_name
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from safe_launch.evidence.worker_channel import Sender
from safe_launch.evidence.worker_messages import (
    Failure,
    FailureBegun,
    Finished,
    Imports,
    Message,
    ModelShape,
    Observed,
    Reexecution,
    Remark,
    SaveLocation,
    encoded,
)
from safe_launch.evidence.worker_receiver import Envelope, Receiver, decoded

TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
FRAMES = st.builds(Frame, TEXT, st.integers(0, 10**6), TEXT, TEXT)
RAISED = st.builds(Raised, TEXT, TEXT, st.none() | FRAMES)
NAMES = TEXT.filter(lambda name: not is_secret_name(name))
"""Values of secret names aren't sent."""
VALUES = st.dictionaries(NAMES, st.one_of(st.booleans(), st.integers(-(2**60), 2**60), TEXT))
RECORDS = st.builds(
    FailureRecord,
    rank=st.integers(0, 10**6),
    at=st.floats(0, 1e12),
    exception=TEXT,
    message=TEXT,
    chain=st.lists(RAISED, max_size=3).map(tuple),
    frames=st.lists(FRAMES, max_size=3).map(tuple),
    step=st.none() | st.integers(0, 10**9),
    parameters=st.lists(TEXT, max_size=3).map(tuple),
    observed=VALUES,
    model=VALUES,
    memory=st.dictionaries(TEXT, st.integers(0, 2**60)),
    exit_code=st.none() | st.integers(0, 255),
    log_tail=st.lists(TEXT, max_size=3).map(tuple),
    finished=st.booleans(),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from([kind.__name__ for kind in Message.__args__])
FIELDS = st.sampled_from(["type", "record", "observed", "step", "shape", "saves", "variable"])


@settings(max_examples=200, deadline=None)
@given(RECORDS)
def test_a_record_survives_its_passage(record: FailureRecord) -> None:
    """Half a surrogate pair in a message is no problem."""
    envelope = decoded(encoded(3, Failure(record)))
    assert envelope is not None
    assert envelope.rank == 3
    assert isinstance(envelope.message, Failure)
    came, sent = (json.dumps(one, default=plain) for one in (envelope.message.record, record))
    assert came == sent


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | JSON.map(lambda one: json.dumps(one).encode()))
def test_what_is_no_message_is_none(line: bytes) -> None:
    """Any bytes and documents give a message or None."""
    assert isinstance(decoded(line), Envelope | None)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(FIELDS, JSON | KINDS, max_size=5))
def test_fields_of_other_types_make_no_message(fields: dict[str, object]) -> None:
    """A valid message keeps its values."""
    types = {kind.__name__: kind for kind in Message.__args__}
    kind = types.get(str(fields.get("type")))
    envelope = decoded(json.dumps({"rank": 1, "message": fields}).encode())
    if envelope is not None:
        assert kind is not None
        assert isinstance(envelope.message, kind)


def test_a_deep_document_is_none() -> None:
    """The nesting exceeds the parser's limit."""
    assert decoded(b"[" * 100_000) is None


@pytest.mark.parametrize(
    "message",
    [
        FailureBegun(FailureRecord(1, 2.0)),
        Finished(),
        Observed({"zero_stage": 2}, 3),
        ModelShape({"config": {"layers": 1}, "weights": [["a", [2, 3], True, None, 1]]}),
        Imports({"modules": ["torch"]}),
        SaveLocation(Saves("out", 1, {"checkpoint-2": 3})),
        Reexecution("HF_HOME"),
        Remark("this torch has no gloo: nothing is reduced"),
        Compared(Shared.SEED, "42", "train.py:7"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_arrive_as_they_were(message: Message) -> None:
    """One line each, with the worker's rank."""
    line = encoded(1, message)
    assert line.count(b"\n") == 1
    assert decoded(line) == Envelope(1, message)


def test_nobody_at_the_other_end_is_no_error(tmp_path: Path) -> None:
    """A missing launcher doesn't stop the training."""
    receiver = Receiver(tmp_path)
    sender = Sender(receiver.path, 0)
    receiver.close()
    for _ in range(2):
        sender.send(Finished())
    Sender(str(tmp_path / "nobody"), 0).send(Finished())
    Sender(None, 0).send(Finished())


def test_a_message_without_an_end_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endless message isn't collected forever."""
    monkeypatch.setattr("safe_launch.evidence.worker_receiver.MAXIMUM", 10)
    receiver = Receiver(tmp_path)
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sender.connect(receiver.path)
    sender.sendall(encoded(0, Finished()) + b"x" * 20)
    connection = receiver.accept()
    assert receiver.receive(connection) == ([Envelope(0, Finished())], False)
    sender.close()
    receiver.close()
