"""The secure channel between two launchers: they prove to be of one job, then exchange frames.

A mutual authentication in three passes with keyed checks over both ends' nonces, as in ISO/IEC
9798-4: the joining node sends its hello, node 0 its nonce and proof, the node its own proof. The
proofs and the keys of the link are derived from the secret and all exchanged bytes by HKDF (RFC
5869). Without a secret nothing is proven, and the following frames have no tags.

Sizes are fixed, and the job isn't mentioned. Each side is a generator: it yields bytes to send and
the number of bytes to wait for, receives these, and returns the link's keys or a refusal.

A frame is a payload after its length and, if there is a key, before a tag: an HMAC over the
frame's number, its length and its payload with the key of its direction, which reveals frames that
were changed, repeated, dropped or sent back.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Generator
from dataclasses import dataclass, field

from ..core.errors import Refused
from ..core.quantities import count_of
from .secret import HOW, Kind, Trust

NAME = b"safe-launch link "
MAGIC = NAME + b"2"
"""First bytes of hello and answer; the number changes with this module."""
NONCE = PROOF = 32
HELLO = struct.Struct(f"!B{NONCE}s460sc")
"""The rest of a hello: kind of proof, nonce, credential, and a line's end, at which launchers of a
line-based version answer at once."""
ANSWER = struct.Struct(f"!B{NONCE}s{PROOF}s")
"""The rest of an answer: kind of proof, nonce, proof."""
OTHER_VERSION = "it is of another version of safe-launch: install the same on every node"
LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!Q")
TAG = 32


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the frames that this end sends and receives; empty without a secret."""

    sent: bytes = field(default=b"", repr=False)
    received: bytes = field(default=b"", repr=False)


Handshake = Generator[tuple[bytes, int], bytes, Keys | Refused]


def joining(trust: Trust) -> Handshake:
    """The joining node's side.

    Raises:
        LaunchError: this node has no credential to offer.
    """
    credential, key = trust.offer()
    hello = HELLO.pack(trust.kind, secrets.token_bytes(NONCE), credential, b"\n")
    magic = yield MAGIC + hello, len(MAGIC)
    if magic != MAGIC:
        return Refused(
            OTHER_VERSION
            if magic.startswith(NAME)
            else "it isn't node 0 of this version of safe-launch; is it safe-launch's port?"
        )
    answer = yield b"", ANSWER.size
    kind, _, proof = ANSWER.unpack(answer)
    if kind != trust.kind:
        means = f"node 0 has {_means(kind)} to prove itself, this node {trust.kind.words}"
        return Refused(f"{means}; {HOW}")
    if trust.kind == Kind.NONE:
        return Keys()
    head_proof, node_proof, head_key, node_key = _derived(key, hello + answer[:-PROOF])
    if not hmac.compare_digest(proof, head_proof):
        yield bytes(PROOF), 0
        return Refused(f"its secret isn't this node's; {HOW}")
    yield node_proof, 0
    return Keys(sent=node_key, received=head_key)


def hosting(trust: Trust) -> Handshake:
    """Node 0's side."""
    magic = yield b"", len(MAGIC)
    if not magic.startswith(NAME):
        return Refused("it isn't a launcher of this version")
    hello = yield b"", HELLO.size
    kind, _, credential, _ = HELLO.unpack(hello)
    answer = ANSWER.pack(trust.kind, secrets.token_bytes(NONCE), b"")[:-PROOF]
    key: bytes | Refused
    if magic != MAGIC:
        key = Refused(OTHER_VERSION)
    elif kind != trust.kind:
        means = f"it has {_means(kind)} to prove itself, node 0 {trust.kind.words}"
        key = Refused(f"{means}; {HOW}")
    else:
        key = trust.key(credential.rstrip(b"\0"))
    if isinstance(key, Refused) or trust.kind == Kind.NONE:
        yield MAGIC + answer + bytes(PROOF), 0
        return key if isinstance(key, Refused) else Keys()
    head_proof, node_proof, head_key, node_key = _derived(key, hello + answer)
    proof = yield MAGIC + answer + head_proof, PROOF
    if not hmac.compare_digest(proof, node_proof):
        return Refused(f"its secret isn't this job's; {HOW}")
    return Keys(sent=head_key, received=node_key)


def _means(kind: int) -> str:
    """The other end's means of proof, in words."""
    return Kind(kind).words if kind in list(Kind) else "something unknown"


def _derived(key: bytes, exchanged: bytes) -> list[bytes]:
    """Proof of node 0, proof of a node, node 0's and the node's key for frames.

    Both ends derive them from the secret and the exchanged messages by HKDF: one extraction, and a
    block for each purpose.
    """
    extracted = hmac.digest(MAGIC, key, "sha256")
    purposes = (b"proof of node 0", b"proof of a node", b"from node 0", b"from a node")
    blocks = (purpose + b"\0" + exchanged + b"\1" for purpose in purposes)
    return [hmac.digest(extracted, block, "sha256") for block in blocks]


@dataclass(slots=True)
class Direction:
    """One direction of a link.

    Attributes:
        key: of the tags; empty for none.
        count: frames so far.
    """

    key: bytes = field(repr=False)
    count: int = 0

    def sealed(self, payload: bytes) -> bytes:
        """The next frame, of a payload."""
        head = LENGTH.pack(len(payload))
        return head + payload + self._tag(head, payload)

    def opened(self, buffer: bytearray, most: int) -> bytes | None:
        """Takes the next frame off a buffer; returns its payload, None while it isn't complete.

        Raises:
            ValueError: it is too long, or its tag is wrong.
        """
        if len(buffer) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(buffer)
        if length > most:
            raise ValueError(f"a message of {count_of(length, 'byte')}, and {most:,} are allowed")
        start, end = LENGTH.size, LENGTH.size + length
        whole = end + (TAG if self.key else 0)
        if len(buffer) < whole:
            return None
        head, payload, tag = buffer[:start], bytes(buffer[start:end]), buffer[end:whole]
        del buffer[:whole]
        if not hmac.compare_digest(bytes(tag), self._tag(bytes(head), payload)):
            raise ValueError("a message that was changed or repeated on its way")
        return payload

    def _tag(self, head: bytes, payload: bytes) -> bytes:
        """The tag of the next frame; empty without a key."""
        number = _NUMBER.pack(self.count)
        self.count += 1
        return hmac.digest(self.key, number + head + payload, "sha256") if self.key else b""
