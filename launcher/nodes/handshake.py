"""How two launchers prove to each other that they are of one job, before either says more.

A mutual authentication in three passes with keyed checks over both ends' nonces, as ISO/IEC 9798-4
has it: the joining node sends its hello, node 0 its nonce and its proof, the node its own proof.
The proofs and the keys of the link come from the secret by HKDF (RFC 5869) with all that was said.
Without a secret nothing is proven, and the frames that follow have no tags.

Sizes are fixed, and no word of the job is said. Each side is a generator: it yields what to send
and how many bytes to wait for, gets these, and returns the link's keys or why there will be none.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Generator
from dataclasses import dataclass, field

from ..core.refused import Refused
from .secret import HOW, Kind, Trust

NAME = b"safe-launch link "
MAGIC = NAME + b"2"
"""How hello and answer begin; the number changes with anything in this module or in `frames`."""
NONCE = PROOF = 32
HELLO = struct.Struct(f"!B{NONCE}s460sc")
"""What follows in a hello: what it can prove, its nonce, a credential; a line's end, with which
launchers that still spoke in lines answer at once."""
ANSWER = struct.Struct(f"!B{NONCE}s{PROOF}s")
"""What follows in an answer: what node 0 can prove, its nonce, its proof."""
OTHER_VERSION = "it is of another version of safe-launch: install the same on every node"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a link's frames; empty without a secret.

    Attributes:
        sent: of what this end sends.
        received: of what the other end sends.
    """

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
        there = Kind(kind).words if kind in list(Kind) else "something unknown"
        return Refused(f"node 0 has {there} to prove itself, this node {trust.kind.words}; {HOW}")
    if trust.kind == Kind.NONE:
        return Keys()
    derived = _Derived.of(key, hello + answer[:-PROOF])
    if not hmac.compare_digest(proof, derived.head_proof):
        yield bytes(PROOF), 0
        return Refused(f"its secret isn't this node's; {HOW}")
    yield derived.node_proof, 0
    return Keys(sent=derived.node_key, received=derived.head_key)


def hosting(trust: Trust) -> Handshake:
    """Node 0's side."""
    magic = yield b"", len(MAGIC)
    if not magic.startswith(NAME):
        return Refused("it isn't a launcher of this version")
    hello = yield b"", HELLO.size
    kind, _, credential, _ = HELLO.unpack(hello)
    said = ANSWER.pack(trust.kind, secrets.token_bytes(NONCE), b"")[:-PROOF]
    if magic != MAGIC or kind != trust.kind:
        yield MAGIC + said + bytes(PROOF), 0
        if magic != MAGIC:
            return Refused(OTHER_VERSION)
        there = Kind(kind).words if kind in list(Kind) else "something unknown"
        return Refused(f"it has {there} to prove itself, node 0 {trust.kind.words}; {HOW}")
    key = trust.key(credential.rstrip(b"\0"))
    if isinstance(key, Refused):
        yield MAGIC + said + bytes(PROOF), 0
        return key
    derived = _Derived.of(key, hello + said)
    if trust.kind == Kind.NONE:
        yield MAGIC + said + bytes(PROOF), 0
        return Keys()
    proof = yield MAGIC + said + derived.head_proof, PROOF
    if not hmac.compare_digest(proof, derived.node_proof):
        return Refused(f"its secret isn't this job's; {HOW}")
    return Keys(sent=derived.head_key, received=derived.node_key)


@dataclass(frozen=True, slots=True)
class _Derived:
    """The proofs and keys that both ends derive from the secret and the exchanged messages."""

    head_proof: bytes
    node_proof: bytes
    head_key: bytes
    node_key: bytes

    @classmethod
    def of(cls, key: bytes, said: bytes) -> _Derived:
        """By HKDF: one extraction, and a block for each purpose."""
        extracted = hmac.digest(MAGIC, key, "sha256")
        purposes = (b"proof of node 0", b"proof of a node", b"from node 0", b"from a node")
        return cls(
            *(hmac.digest(extracted, use + b"\0" + said + b"\1", "sha256") for use in purposes)
        )
