"""Proof of belonging to a job: a shared secret, or the user's credentials of munge.

Slurm itself authenticates with munge (slurm.conf(5), AuthType=auth/munge). Its daemon on each host
signs and encrypts with the cluster's key, so that only this user can read a credential; libmunge
asks it over a local socket (munge_encode(3), munge_decode(3), munge_ctx(3); numbers from munge.h of
0.5.15).
"""

from __future__ import annotations

import ctypes
import os
import secrets
import stat
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from ..core.errors import ExitCode, LaunchError, Refused, reason_of
from ..core.placement import Placement
from ..core.quantities import count_of
from ..schedulers import mpi, slurm
from ..schedulers.this_host import this_host

VARIABLE = "SAFE_LAUNCH_SECRET"
MOST = 4096
"""Bytes of a secret at most."""
SHORT = 16
"""Bytes below which a secret can be guessed from an observed handshake."""
HOW = f"give every node the same: --secret-file FILE, or {VARIABLE} (openssl rand -hex 32)"
_LIBRARY = "libmunge.so.2"
_CIPHER, _SOCKET, _READER = 0, 8, 9
"""Options of a context (`munge_opt_t`): MUNGE_OPT_CIPHER_TYPE, _SOCKET, _UID_RESTRICTION."""
_AES128 = 4
"""MUNGE_CIPHER_AES128: always there, while munge's default may be set to no cipher."""
_LONGEST = 1 << 16
"""Bytes of a payload that are read at most."""


class Kind(IntEnum):
    """The ways to prove oneself, as numbered in the handshake."""

    NONE = 0
    SECRET = 1
    MUNGE = 2

    @property
    def words(self) -> str:
        """The launcher's means of proof, in words."""
        return ("no secret", "a secret", "Slurm's munge")[self]


@dataclass(frozen=True, slots=True)
class Trust:
    """The proof that both ends of a link give.

    Attributes:
        secret: the text that all launchers of the job have; empty without one.
        socket: of munged on this host; empty for munge's default.
    """

    kind: Kind = Kind.NONE
    secret: bytes = field(default=b"", repr=False)
    socket: str = ""

    def offer(self) -> tuple[bytes, bytes]:
        """The credential that a joining node sends, and the key that both ends then have.

        A secret is itself the key, and isn't sent. Under munge, a joining node makes a key for each
        connection, which munge hides from all other users (munge(1), `--restrict-uid`).

        Raises:
            LaunchError: munge gives no credential.
        """
        if self.kind is not Kind.MUNGE:
            return b"", self.secret
        key = secrets.token_bytes(32)
        credential = munge_encoded(key, os.getuid(), self.socket)
        if isinstance(credential, Refused):
            raise LaunchError(credential.sentence, code=ExitCode.RETRY_ELSEWHERE)
        return credential, key

    def key(self, credential: bytes) -> bytes | Refused:
        """Node 0's key for a credential, which under munge this user must have made."""
        if self.kind is not Kind.MUNGE:
            return self.secret
        return munge_decoded(credential, os.getuid(), self.socket)


def of_job(
    file: Path | None,
    placement: Placement,
    environment: MutableMapping[str, str],
    *,
    is_required: bool,
) -> Trust:
    """The proof that this job's launchers exchange.

    A secret is removed from the environment, so that no worker inherits it. With `is_required`,
    more than one host without protection is refused.

    Raises:
        LaunchError: the secret can't be used, or is required and absent.
    """
    text = environment.pop(VARIABLE, None)
    if file is not None:
        return Trust(Kind.SECRET, _checked(_read(file), f"--secret-file {file}"))
    if text is not None:
        return Trust(Kind.SECRET, _checked(text.encode(errors="surrogateescape"), VARIABLE))
    here = this_host()
    # Of mpirun's processes within a Slurm job only those on other nodes are srun's.
    is_of_srun = slurm.is_task(environment, here) and mpi.read(environment, here) is None
    if is_of_srun and not placement.is_alone:
        socket = slurm.munge_socket(environment)
        if isinstance(munge_encoded(b"", os.getuid(), socket), bytes):
            return Trust(Kind.MUNGE, socket=socket)
    if is_required and placement.spans_hosts:
        nodes = count_of(placement.nodes, "node has", "nodes have")
        raise LaunchError(f"--require-secret: the job's {nodes} no secret", HOW)
    return Trust()


def remark(trust: Trust, placement: Placement) -> str:
    """A line on the links' protection; empty if there is nothing to say."""
    if trust.kind is Kind.NONE and placement.spans_hosts:
        who = f"whoever reaches port {placement.port} of node 0 can join the job or end it"
        return f"the links between the nodes aren't protected: {who}. To protect them, {HOW}"
    if trust.kind is Kind.SECRET and len(trust.secret) < SHORT:
        characters = count_of(len(trust.secret), "character")
        return f"the secret has only {characters}, and can be guessed; {HOW}"
    return ""


def _checked(value: bytes, source: str) -> bytes:
    """A secret without white space around it.

    Raises:
        LaunchError: it is empty, or too long.
    """
    value = value.strip()
    if not 0 < len(value) <= MOST:
        size = f"longer than {count_of(MOST, 'byte')}" if value else "empty"
        raise LaunchError(f"{source}: the secret is {size}", HOW)
    return value


def _read(path: Path) -> bytes:
    """The content of a file that nobody else can read.

    As with ssh's keys (`sshkey_perm_ok` in OpenSSH's authfile.c), only a file of this user must be
    private: a pod's Secret belongs to root.

    Raises:
        LaunchError: it isn't such a file, or can't be read.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise LaunchError(f"--secret-file {path} isn't a file", HOW)
            if status.st_uid == os.getuid() and status.st_mode & 0o077:
                problem = (
                    f"--secret-file {path}: others can read it (mode {status.st_mode & 0o777:o})"
                )
                raise LaunchError(problem, f"chmod 600 {path}")
            return file.read(MOST + 2)
    except OSError as error:
        raise LaunchError(f"--secret-file {path} can't be read: {reason_of(error)}", HOW) from error


@contextmanager
def _context(socket: str) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    """The library, and a context for its calls.

    Raises:
        OSError: the library isn't there.
    """
    library = ctypes.CDLL(_LIBRARY)
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_strerror.restype = ctypes.c_char_p
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    context = ctypes.c_void_p(library.munge_ctx_create())
    if not context:
        raise OSError("munge has no memory left")
    try:
        if socket:
            library.munge_ctx_set(context, _SOCKET, ctypes.c_char_p(os.fsencode(socket)))
        yield library, context
    finally:
        library.munge_ctx_destroy(context)


def munge_encoded(payload: bytes, reader: int, socket: str) -> bytes | Refused:
    """A credential that only the user with the id `reader` can open.

    The `socket` is that of munged on this host; empty for munge's default.
    """
    credential = ctypes.c_char_p()
    try:
        with _context(socket) as (library, context):
            library.munge_ctx_set(context, _CIPHER, ctypes.c_int(_AES128))
            library.munge_ctx_set(context, _READER, ctypes.c_uint32(reader))
            arguments = (ctypes.byref(credential), context, payload, len(payload))
            code = library.munge_encode(*arguments)
            result = credential.value or b""
            ctypes.CDLL(None).free(credential)
            return _failure(library, code) if code else result
    except OSError as error:
        return Refused(f"munge can't be used: {reason_of(error)}")


def munge_decoded(credential: bytes, writer: int, socket: str) -> bytes | Refused:
    """The payload of a credential, if the user with the id `writer` has made it."""
    payload, size = ctypes.c_void_p(), ctypes.c_int()
    user, group = ctypes.c_uint32(), ctypes.c_uint32()
    try:
        with _context(socket) as (library, context):
            results = (ctypes.byref(item) for item in (payload, size, user, group))
            code = library.munge_decode(ctypes.c_char_p(credential), context, *results)
            length = min(size.value, _LONGEST) if payload.value else 0
            result = ctypes.string_at(payload, length)
            ctypes.CDLL(None).free(payload)
    except OSError as error:
        return Refused(f"munge can't be used: {reason_of(error)}")
    if code:
        return _failure(library, code)
    if user.value != writer:
        return Refused("munge's credential belongs to another user")
    return result


def _failure(library: ctypes.CDLL, code: int) -> Refused:
    return Refused(f"munge: {library.munge_strerror(code).decode()}")
