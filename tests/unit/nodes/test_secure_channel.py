"""The handshake between two launchers, and attacks that it stops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safe_launch.core.errors import Refused
from safe_launch.nodes.secret import Kind, Trust
from safe_launch.nodes.secure_channel import (
    ANSWER,
    HELLO,
    MAGIC,
    NAME,
    PROOF,
    TAG,
    Direction,
    Handshake,
    Keys,
    hosting,
    joining,
)

OURS, THEIRS, OPEN = Trust(Kind.SECRET, b"ours" * 8), Trust(Kind.SECRET, b"theirs" * 8), Trust()
HELLO_SIZE, ANSWER_SIZE = len(MAGIC) + HELLO.size, len(MAGIC) + ANSWER.size
End = Keys | Refused
Change = Callable[[bytes], bytes]


def shaken(node: Handshake, head: Handshake, change: Change = bytes) -> tuple[End, End, bytes]:
    """Both results of a handshake and node 0's input; `change` alters all of that input."""
    sides, results, waiting = (node, head), {}, [bytearray(), bytearray()]
    got, needed = bytearray(), [0, 0]
    for side, generator in enumerate(sides):
        out, needed[side] = next(generator)
        waiting[1 - side] += change(out) if side == 0 else out
        got += out if side == 0 else b""
    while len(results) < 2:
        before = dict(results), [len(buffer) for buffer in waiting]
        for side, generator in enumerate(sides):
            if side in results or len(waiting[side]) < needed[side]:
                continue
            came = bytes(waiting[side][: needed[side]])
            del waiting[side][: needed[side]]
            try:
                out, needed[side] = generator.send(came)
            except StopIteration as end:
                results[side] = end.value
            else:
                waiting[1 - side] += change(out) if side == 0 else out
                got += out if side == 0 else b""
        if before == (results, [len(buffer) for buffer in waiting]):
            break  # a further read would block until the other's end
    gone = Refused("the other end has gone")
    return results.get(0, gone), results.get(1, gone), bytes(got)


def test_both_have_the_secret() -> None:
    """Each direction has a key; keys differ between connections."""
    keys = []
    for _ in range(2):
        node, head, _ = shaken(joining(OURS), hosting(OURS))
        assert isinstance(node, Keys)
        assert head == Keys(sent=node.received, received=node.sent)
        keys += [node.sent, node.received]
    assert len(set(keys)) == 4
    assert {len(key) for key in keys} == {32}


def test_nobody_has_one() -> None:
    """Frames have no tags, as in torchrun."""
    assert shaken(joining(OPEN), hosting(OPEN))[:2] == (Keys(), Keys())


@pytest.mark.parametrize(
    ("node", "head", "at_node", "at_head"),
    [
        (OURS, THEIRS, "its secret isn't this node's", "its secret isn't this job's"),
        (OPEN, OURS, "node 0 has a secret", "it has no secret to prove itself, node 0 a secret"),
        (OURS, OPEN, "node 0 has no secret to prove", "it has a secret to prove itself, node 0 no"),
    ],
)
def test_who_is_refused(node: Trust, head: Trust, at_node: str, at_head: str) -> None:
    """Both ends name the reason and the remedy."""
    for found, words in zip(shaken(joining(node), hosting(head)), (at_node, at_head), strict=False):
        assert isinstance(found, Refused)
        assert words in found.sentence
        assert "--secret-file FILE, or SAFE_LAUNCH_SECRET" in found.sentence


def test_a_recorded_node_is_no_node() -> None:
    """A replay fails because node 0's nonce is new."""
    _, head, recorded = shaken(joining(OURS), hosting(OURS))
    assert isinstance(head, Keys)
    assert len(recorded) == HELLO_SIZE + PROOF
    again = hosting(OURS)
    next(again)
    again.send(recorded[: len(MAGIC)])
    _, needed = again.send(recorded[len(MAGIC) : HELLO_SIZE])
    assert needed == PROOF
    with pytest.raises(StopIteration) as end:
        again.send(recorded[HELLO_SIZE:])
    assert isinstance(end.value.value, Refused)


def test_a_recorded_node_0_is_no_node_0() -> None:
    """A replay of node 0 on its port fails."""
    head = hosting(OURS)
    next(head)
    node = joining(OURS)
    hello, _ = next(node)
    head.send(hello[: len(MAGIC)])
    recorded, _ = head.send(hello[len(MAGIC) :])
    another = joining(OURS)
    next(another)
    another.send(recorded[: len(MAGIC)])
    assert another.send(recorded[len(MAGIC) :]) == (bytes(PROOF), 0)
    with pytest.raises(StopIteration) as end:
        another.send(b"")
    assert isinstance(end.value.value, Refused)


def test_node_0s_proof_sent_back() -> None:
    """A reflected proof fails: the two sides' proofs differ."""
    head = hosting(OURS)
    next(head)
    hello, _ = next(joining(OURS))
    head.send(hello[: len(MAGIC)])
    answer, _ = head.send(hello[len(MAGIC) :])
    with pytest.raises(StopIteration) as end:
        head.send(answer[-PROOF:])
    assert isinstance(end.value.value, Refused)


@pytest.mark.parametrize("place", [len(MAGIC), len(MAGIC) + 1, HELLO_SIZE - 1, HELLO_SIZE])
def test_a_changed_byte(place: int) -> None:
    """Any change in transit fails: the proofs cover the whole transcript."""
    seen = 0

    def change(out: bytes) -> bytes:
        nonlocal seen
        start, seen = seen, seen + len(out)
        if not start <= place < seen:
            return out
        return out[: place - start] + bytes([out[place - start] ^ 1]) + out[place - start + 1 :]

    _, head, _ = shaken(joining(OURS), hosting(OURS), change)
    assert isinstance(head, Refused)


def test_other_versions() -> None:
    """Both ends report the versions; a line of JSON isn't taken for a hello."""
    other = NAME + b"9" + bytes(HELLO.size)
    head = hosting(OURS)
    next(head)
    head.send(other[: len(MAGIC)])
    answer, _ = head.send(other[len(MAGIC) :])
    assert answer.startswith(MAGIC)
    node = joining(OURS)
    next(node)
    with pytest.raises(StopIteration) as end:
        node.send(other[: len(MAGIC)])
    assert "another version of safe-launch" in end.value.value.sentence
    for generator in (joining(OURS), hosting(OURS)):
        next(generator)
        with pytest.raises(StopIteration) as end:
            generator.send(b'{"type": "Refusal"}'[: len(MAGIC)])
        assert "of this version" in end.value.value.sentence


@given(st.binary(max_size=2 * HELLO_SIZE), st.sampled_from([OURS, OPEN]), st.booleans())
def test_any_bytes(content: bytes, trust: Trust, is_head: bool) -> None:
    """Any bytes are rejected, and at most a hello's length is read."""
    side = hosting(trust) if is_head else joining(trust)
    rest = MAGIC + content
    _, needed = next(side)
    while len(rest) >= needed <= HELLO_SIZE:
        came, rest = rest[:needed], rest[needed:]
        try:
            _, needed = side.send(came)
        except StopIteration as end:
            result = end.value
            break
    else:
        result = None
    assert needed <= HELLO_SIZE
    assert result is None or isinstance(result, Refused) or trust is OPEN


FRAMES = [b"first", b"", b"third" * 100]
KEY = b"k" * 32


def opened(frames: bytes, key: bytes = KEY, most: int = 1000) -> list[bytes]:
    """The payloads of some frames."""
    direction, buffer, found = Direction(key), bytearray(frames), []
    while (payload := direction.opened(buffer, most)) is not None:
        found.append(payload)
    return found


@pytest.mark.parametrize("key", [KEY, b""], ids=["secret", "none"])
def test_frames_come_as_they_were(key: bytes) -> None:
    """In order and whole; a partial frame waits for its rest."""
    direction = Direction(key)
    sealed = b"".join(map(direction.sealed, FRAMES))
    assert opened(sealed, key) == FRAMES
    assert opened(sealed[:-1], key) == FRAMES[:-1]
    assert len(sealed) == sum(map(len, FRAMES)) + 3 * 4 + (3 * TAG if key else 0)


def test_frames_that_were_meddled_with() -> None:
    """Changed, repeated, dropped, reordered or reflected frames are rejected."""
    direction = Direction(KEY)
    one, two, three = (direction.sealed(payload) for payload in FRAMES)
    meddled = [one[:place] + bytes([one[place] ^ 1]) + one[place + 1 :] for place in range(3, 41)]
    for frames in (*meddled, two, one + one, one + three, two + one):
        with pytest.raises(ValueError, match=r"changed or repeated|are allowed"):
            opened(frames + bytes(300))
    with pytest.raises(ValueError, match="changed or repeated"):
        opened(one, b"o" * 32)


def test_a_frame_is_refused_by_its_length() -> None:
    """It is rejected before its content arrives."""
    with pytest.raises(ValueError, match="a message of 1,001 bytes, and 1,000 are allowed"):
        opened((1001).to_bytes(4))


def test_keys_stay_unsaid() -> None:
    """No repr of an object shows its secret or key, for example in a traceback."""
    texts = [repr(OURS), repr(Keys(b"ours", b"ours")), repr(Direction(b"ours"))]
    assert [text for text in texts if "ours" in text] == []
    assert all(first != second for first, second in pairwise(texts))
