"""What workers say, whatever it is: read whole, or passed over."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from safe_launch.core.plain_json import plain
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from safe_launch.evidence.worker_channel import Message, message_of

TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
FRAMES = st.builds(Frame, TEXT, st.integers(0, 10**6), TEXT, TEXT)
RAISED = st.builds(Raised, TEXT, TEXT, st.none() | FRAMES)
VALUES = st.dictionaries(TEXT, st.one_of(st.booleans(), st.integers(-(2**60), 2**60), TEXT))
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
FIELDS = st.sampled_from(["kind", "rank", "record", "observed", "step", "shape", "at", "frames"])


@settings(max_examples=200, deadline=None)
@given(RECORDS)
def test_a_record_survives_its_passage(record: FailureRecord) -> None:
    """Half a surrogate pair in a message is no obstacle."""
    line = json.dumps({"kind": "failed", "rank": 3, "record": record}, default=plain).encode()
    message = message_of(line)
    assert message is not None
    assert message.record is not None
    told, sent = (json.dumps(one, default=plain) for one in (message.record, record))
    assert told == sent


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | JSON.map(lambda one: json.dumps(one).encode()))
def test_what_is_no_message_is_none(line: bytes) -> None:
    """Any bytes and any document give a message or nothing."""
    assert isinstance(message_of(line), Message | None)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(FIELDS, JSON, max_size=8))
def test_fields_of_other_types_make_no_message(fields: dict[str, object]) -> None:
    """A message that is one has what it says."""
    message = message_of(json.dumps(fields).encode())
    if message is not None:
        assert isinstance(message.rank, int)
        assert isinstance(message.kind, str)
        assert message.record is None or isinstance(message.record, FailureRecord)


def test_a_deep_document_is_none() -> None:
    """Nested beyond what a parser follows."""
    assert message_of(b"[" * 100_000) is None
