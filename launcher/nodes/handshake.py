"""The handshake by which two launchers prove that they are of one job, before anything else.

A mutual authentication in three passes with keyed checks over both ends' nonces, as in ISO/IEC
9798-4: the joining node sends its hello, node 0 its nonce and proof, the node its own proof. The
proofs and the keys of the link are derived from the secret and all exchanged bytes by HKDF (RFC
5869). Without a secret nothing is proven, and the following frames have no tags.

Sizes are fixed, and the job isn't mentioned. Each side is a generator: it yields bytes to send and
the number of bytes to wait for, receives these, and returns the link's keys or a refusal.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Generator
from dataclasses import dataclass, field

from ..core.errors import Refused
from .secret import HOW, Kind, Trust

NAME = b"safe-launch link "
MAGIC = NAME + b"2"
"""First bytes of hello and answer; the number changes with this module or `frames`."""
NONCE = PROOF = 32
HELLO = struct.Struct(f"!B{NONCE}s460sc")
"""The rest of a hello: kind of proof, nonce, credential, and a line's end, at which launchers of a
line-based version answer at once."""
ANSWER = struct.Struct(f"!B{NONCE}s{PROOF}s")
"""The rest of an answer: kind of proof, nonce, proof."""
OTHER_VERSION = "it is of another version of safe-launch: install the same on every node"


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
